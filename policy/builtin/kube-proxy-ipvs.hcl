# kube-proxy in IPVS mode.

use "kubernetes" {}

module "ip_vs" {
  reason  = "kube-proxy creates IPVS virtual servers; without the module it falls back to iptables or exits."
  symptom = "kube-proxy logs: can't use the IPVS proxier."
  ref     = "https://github.com/kubernetes/kubernetes/blob/master/pkg/proxy/ipvs/README.md"
}

module "ip_vs_rr" {
  reason  = "The default scheduler, round robin."
  symptom = "kube-proxy logs: IPVS proxier: the scheduler rr is not available."
  ref     = "https://github.com/kubernetes/kubernetes/blob/master/pkg/proxy/ipvs/README.md"
}

sysctl "net.ipv4.vs.conntrack" {
  value   = 1
  reason  = "Masquerading works only for IPVS connections that are in conntrack."
  symptom = "Replies from Services carry the Pod's address, and clients reset the connection."
  ref     = "https://docs.kernel.org/networking/ipvs-sysctl.html"
}

sysctl "net.ipv4.vs.expire_nodest_conn" {
  value    = 1
  severity = "warn"
  reason   = "A connection to an endpoint that is gone must end, not hang."
  symptom  = "Clients hang for minutes after a Pod was deleted."
  ref      = "https://docs.kernel.org/networking/ipvs-sysctl.html"
}

sysctl "net.ipv4.vs.expire_quiescent_template" {
  value    = 1
  severity = "warn"
  reason   = "Affinity to an endpoint that takes no new connections must end."
  symptom  = "Clients with session affinity keep reaching a terminating Pod."
  ref      = "https://docs.kernel.org/networking/ipvs-sysctl.html"
}

sysctl "net.ipv4.vs.conn_reuse_mode" {
  value    = 0
  severity = "warn"
  when     = version_at_least(kernel.version, "4.1") && !version_at_least(kernel.version, "5.9")
  reason   = "Before kernel 5.9, mode 1 delays a connection that reuses a port by one second."
  symptom  = "Under load, one request in several hundred takes a second longer."
  ref      = "https://github.com/kubernetes/kubernetes/issues/93297"
}

sysctl "net.ipv4.conf.all.arp_ignore" {
  value    = 1
  severity = "warn"
  reason   = "kube-proxy's strictARP: the node must not answer ARP for Service addresses on kube-ipvs0."
  symptom  = "MetalLB's layer 2 addresses move between nodes."
  ref      = "https://github.com/kubernetes/kubernetes/pull/75295"
}

sysctl "net.ipv4.conf.all.arp_announce" {
  value    = 2
  severity = "warn"
  reason   = "kube-proxy's strictARP: the node must not announce Service addresses on kube-ipvs0."
  symptom  = "MetalLB's layer 2 addresses move between nodes."
  ref      = "https://github.com/kubernetes/kubernetes/pull/75295"
}

check "ipvs.settings" {}
