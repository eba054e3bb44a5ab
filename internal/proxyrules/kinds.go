package proxyrules

import (
	"fmt"
	"slices"

	"nodegate/checks"
)

// Kind describes one kind of finding.
type Kind struct {
	Name    string         `json:"name"`
	Verdict checks.Verdict `json:"verdict"`
	Summary string         `json:"summary"`
	Remedy  string         `json:"remedy"`
	Ref     string         `json:"ref,omitempty"`
}

// Remedies that many findings share. They are text to paste, never run from here. NODE stands for the node's name.
const (
	restart = "restart kube-proxy, which rewrites every rule: " +
		"kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE"
	whoElse = "find what else writes iptables on this node (firewalld, another kube-proxy, a cleanup script), then " + restart
	quorum  = "kubectl cordon NODE; " +
		"kubectl annotate node NODE cluster-autoscaler.kubernetes.io/scale-down-disabled=true; " +
		"kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE; " +
		"kubectl uncordon NODE once an audit passes"
)

const (
	refIptables = "kubernetes pkg/proxy/iptables/proxier.go"
	refNFT      = "kubernetes pkg/proxy/nftables/proxier.go"
)

// Kinds lists every finding that this package can make.
func Kinds() []Kind {
	list := structureKinds()
	list = append(list, serviceKinds()...)
	list = append(list, truthKinds()...)
	return list
}

func structureKinds() []Kind {
	return []Kind{
		{"kubeproxy.rules.absent", checks.Unknown, "the input has no rules of kube-proxy",
			"read the rules on a node where kube-proxy runs, with every backend: iptables-nft-save, iptables-legacy-save, " +
				"nft -j list ruleset", ""},
		{"kubeproxy.mode.ipvs", checks.Unknown, "kube-proxy runs in IPVS mode, which is not judged here",
			"compare ipvsadm -Ln with the EndpointSlices", ""},
		{"kubeproxy.backend.mixed", checks.Fail, "several backends have rules of kube-proxy: old rules shadow new",
			"use one iptables backend for kube-proxy, kubelet and host (update-alternatives --config iptables), then reboot, or flush the " +
				"other backend's KUBE chains", "kubernetes#109811"},
		{"kubeproxy.backend.kubelet", checks.Warn, "kubelet and kube-proxy use different iptables backends",
			"give the kube-proxy image and the host one iptables backend (update-alternatives --config iptables), then restart both",
			"kubernetes#109811"},
		{"kubeproxy.table.missing", checks.Unknown, "a table is missing from the save", "save all tables: run iptables-save without -t", ""},
		{"kubeproxy.table.flushed", checks.Fail, "one table lost every chain of kube-proxy while another kept them", whoElse, refIptables},
		{"kubeproxy.canary.missing", checks.Warn, "KUBE-PROXY-CANARY is gone: somebody flushed the table",
			"kube-proxy repairs this within its sync period (30 s); if it does not, " + restart, "kubernetes#81517"},
		{"kubeproxy.jump.missing", checks.Fail, "a root jump into kube-proxy's chains is missing", whoElse, refIptables},
		{"kubeproxy.jump.loop", checks.Fail, "chains jump in a circle", restart, ""},
		{"kubeproxy.chain.undeclared", checks.Fail, "a chain is used but not declared in its table", restart, refIptables},
		{"kubeproxy.chain.unreferenced", checks.Warn, "no rule leads to a chain (legal only above 1000 endpoints)", restart, refIptables},
		{"kubeproxy.chain.unexpected-rule", checks.Fail, "a rule that kube-proxy does not write is in one of its chains", whoElse, refIptables},
		{"kubeproxy.rule.unreadable", checks.Unknown, "this host's iptables is too old to print the rule",
			"read the rules with the iptables of the kube-proxy image; do not judge endpoints by this output",
			"kubernetes#95409, kubernetes#114537"},
		{"kubeproxy.masquerade.mark", checks.Fail, "the chain that marks packets for masquerading does not mark them", restart, refIptables},
		{"kubeproxy.masquerade.mismatch", checks.Fail, "marking, masquerading and forwarding use different mark bits",
			"give kube-proxy and kubelet the same iptablesMasqueradeBit, then " + restart, refIptables},
		{"kubeproxy.masquerade.postrouting", checks.Fail, "marked packets are not masqueraded as they should be", restart, refIptables},
		{"kubeproxy.masquerade.double-snat", checks.Warn, "the old POSTROUTING form masquerades VXLAN packets a second time",
			"upgrade kube-proxy to 1.16.13, 1.17.9, 1.18.6 or later; else a kernel with the fix (5.7, 5.4.41, 4.19.123, 4.14.181), else " +
				"tx-checksum-ip-generic off on the VXLAN link", "kubernetes#92035"},
		{"kubeproxy.masquerade.random-fully", checks.Warn, "MASQUERADE without --random-fully: source ports collide under load",
			"give kube-proxy iptables 1.6.2 or later", "kubernetes#78547"},
		{"kubeproxy.forward.invalid-drop", checks.Fail, "INVALID packets are not dropped: a late packet resets its connection",
			"set net.netfilter.nf_conntrack_tcp_be_liberal=1, or " + restart, "kubernetes#74840, kubernetes#120412"},
		{"kubeproxy.forward.be-liberal", checks.Unknown,
			"INVALID packets are not dropped by a rule; the sysctl that replaces it is not known here",
			"sysctl net.netfilter.nf_conntrack_tcp_be_liberal must print 1; else set it, or " + restart, "kubernetes#120412"},
		{"kubeproxy.forward.invalid-order", checks.Fail, "the INVALID drop comes after an ACCEPT of KUBE-FORWARD", restart, "kubernetes#74840"},
		{"kubeproxy.forward.accept", checks.Fail, "KUBE-FORWARD does not accept Service traffic", restart, refIptables},
		{"kubeproxy.firewall.bare-drop", checks.Fail, "KUBE-FIREWALL drops every packet: the mark match was lost between iptables versions",
			"use the same iptables version for kubelet and host (1.8.8 and later lose the match when 1.8.7 rewrites the rule): " +
				"iptables -D KUBE-FIREWALL -j DROP, then upgrade", "kubernetes#112477"},
		{"kubeproxy.firewall.localnet", checks.Warn, "KUBE-FIREWALL does not stop others from reaching localhost Services",
			"restart kubelet; while route_localnet=1, 127.0.0.0/8 is open to the network", "kubernetes#90259"},
		{"kubeproxy.firewall.unpaired", checks.Fail, "loadBalancerSourceRanges and its drop do not pair", restart, "kubernetes#110289"},
		{"kubeproxy.nft.base-chain", checks.Fail, "a base chain of table kube-proxy is missing or hooked elsewhere", restart, refNFT},
		{"kubeproxy.nft.map", checks.Fail, "a map or set of table kube-proxy is missing", restart, refNFT},
		{"kubeproxy.nft.cluster-ips", checks.Fail, "set cluster-ips is not exactly the ClusterIPs in use", restart, refNFT},
		{"kubeproxy.nft.hairpin-set", checks.Fail, "set hairpin-connections has what no endpoint could send", restart, refNFT},
	}
}

func serviceKinds() []Kind {
	return []Kind{
		{"kubeproxy.service.hash", checks.Fail, "a Service's rule leads to a chain whose name is not the Service's hash", restart, refIptables},
		{"kubeproxy.service.address", checks.Fail, "a Service's rules disagree about its address or port", restart, refIptables},
		{"kubeproxy.service.duplicate", checks.Fail,
			"one address and port leads to two Services; only the first is reached", restart, refIptables},
		{"kubeproxy.service.conflict", checks.Fail, "one ClusterIP and port is both dispatched and blocked", restart, refIptables},
		{"kubeproxy.service.reject", checks.Fail, "a Service without endpoints is not rejected as it should be", restart, refIptables},
		{"kubeproxy.service.masquerade", checks.Fail,
			"a Service lacks the masquerading of off-cluster traffic that others have", restart, refIptables},
		{"kubeproxy.service.portal", checks.Fail, "a Service's ClusterIP leads nowhere, though its chains are there", whoElse, refIptables},
		{"kubeproxy.service.portals", checks.Fail, "KUBE-SERVICES is empty: no Service address leads anywhere", whoElse, refIptables},
		{"kubeproxy.nodeports.order", checks.Fail, "the KUBE-NODEPORTS jump is not last in KUBE-SERVICES", restart, refIptables},
		{"kubeproxy.nodeports.condition", checks.Fail, "the KUBE-NODEPORTS jump is not for the node's own addresses", restart, refIptables},
		{"kubeproxy.nodeports.missing", checks.Fail, "nothing leads to KUBE-NODEPORTS", restart, refIptables},
		{"kubeproxy.external.empty", checks.Fail, "the chain for external traffic has no rules", restart, refIptables},
		{"kubeproxy.external.masquerade", checks.Fail, "external traffic is not masqueraded as its policy wants", restart, refIptables},
		{"kubeproxy.external.dispatch", checks.Fail, "external traffic does not reach the Service's endpoints", restart, refIptables},
		{"kubeproxy.external.pod", checks.Fail, "pod traffic to an external address is not short-circuited", restart, refIptables},
		{"kubeproxy.external.order", checks.Fail, "the rules for external traffic are out of order", restart, refIptables},
		{"kubeproxy.dispatch.empty", checks.Fail, "a Service's chain leads to no endpoint", restart, refIptables},
		{"kubeproxy.dispatch.shadowed", checks.Fail, "an unconditional rule hides the endpoints after it", restart, refIptables},
		{"kubeproxy.dispatch.last", checks.Fail,
			"the last dispatch rule is conditional: some connections match no endpoint", restart, refIptables},
		{"kubeproxy.dispatch.duplicate", checks.Fail, "an endpoint is dispatched to twice", restart, refIptables},
		{"kubeproxy.dispatch.probability", checks.Fail, "a dispatch probability is not 1/(endpoints left)", restart, refIptables},
		{"kubeproxy.dispatch.condition", checks.Fail, "a dispatch rule has a condition that kube-proxy does not write", restart, refIptables},
		{"kubeproxy.dispatch.order", checks.Fail, "rules of a Service's chain are out of order", restart, refIptables},
		{"kubeproxy.dispatch.foreign", checks.Fail, "a Service dispatches to an endpoint of another Service", restart, refIptables},
		{"kubeproxy.dispatch.count", checks.Fail, "numgen's modulus is not the number of endpoints", restart, refNFT},
		{"kubeproxy.dispatch.keys", checks.Fail, "the dispatch keys are not 0 to N-1", restart, refNFT},
		{"kubeproxy.affinity.set", checks.Fail, "session affinity does not cover exactly the endpoints", restart, refIptables},
		{"kubeproxy.affinity.name", checks.Fail, "an affinity rule checks another endpoint's list", restart, refIptables},
		{"kubeproxy.affinity.timeout", checks.Fail, "affinity rules disagree about the timeout, or do not reap", restart, refIptables},
		{"kubeproxy.affinity.record", checks.Fail, "an endpoint does not record its clients: affinity never works", restart, refIptables},
		{"kubeproxy.endpoint.empty", checks.Fail, "an endpoint's chain has no rules", restart, refIptables},
		{"kubeproxy.endpoint.hairpin", checks.Fail,
			"an endpoint's traffic to itself is not masqueraded, or another address is", restart, refIptables},
		{"kubeproxy.endpoint.dnat", checks.Fail, "an endpoint's chain translates to no endpoint or to another one", restart, refIptables},
		{"kubeproxy.endpoint.order", checks.Fail, "an endpoint's rules are out of order", restart, refIptables},
		{"kubeproxy.endpoint.hash", checks.Fail, "an endpoint's chain name is not the hash of Service and address", restart, refIptables},
		{"kubeproxy.endpoint.protocol", checks.Fail, "an endpoint translates another protocol than its Service's", restart, refIptables},
	}
}

func truthKinds() []Kind {
	return []Kind{
		{"kubeproxy.truth.endpoint-stale", checks.Fail, "the rules lead to endpoints that the API no longer has", quorum, "kubernetes#87615"},
		{"kubeproxy.truth.endpoint-missing", checks.Fail, "the API has endpoints that the rules lack", quorum, "kubernetes#87615"},
		{"kubeproxy.truth.service-stale", checks.Fail, "the rules serve a Service that the API no longer has", quorum, "kubernetes#87615"},
		{"kubeproxy.truth.service-missing", checks.Fail, "the API has a Service that the rules lack", quorum, "kubernetes#87615"},
		{"kubeproxy.truth.service-address", checks.Fail, "a Service's addresses in the rules are not those in the API", quorum,
			"kubernetes#87615"},
		{"kubeproxy.truth.service-policy", checks.Fail, "the rules follow another traffic policy or session affinity than the API has",
			quorum, "kubernetes#87615"},
		{"kubeproxy.truth.source-ranges", checks.Fail, "the rules let others use a load balancer's address than the API does", quorum,
			"kubernetes#87615"},
		{"kubeproxy.truth.unsettled", checks.Unknown, "the rules differ from the API, and the audit ended before that was certain",
			"audit again, with a longer --timeout", ""},
		{"kubeproxy.truth.unanswered", checks.Unknown, "the API server did not answer: the rules are compared with nothing",
			"see whether the API server is up, and whether the kubeconfig's credentials may list and watch Services and EndpointSlices", ""},
		{"kubeproxy.healthport.closed", checks.Fail, "kube-proxy does not listen on a Service's health check node port",
			"see who has the port: ss -ltnp; kube-proxy tries again whenever it writes its rules", ""},
		{"kubeproxy.healthport.unread", checks.Unknown, "whether kube-proxy listens on health check node ports could not be seen",
			"run audit as root on the node itself", ""},
		{"kubeproxy.conntrack.stale-flow", checks.Fail, "conntrack still sends flows to endpoints that the API no longer has",
			"make conntrack forget these flows: conntrack -D with their Service and endpoint", "kubernetes#139628"},
		{"kubeproxy.conntrack.unread", checks.Unknown, "conntrack's flows could not be read",
			"run audit as root on the node itself, with a kernel that has nf_conntrack_netlink", ""},
		{"kubeproxy.process.absent", checks.Fail, "there are rules of kube-proxy, and no kube-proxy: nobody changes them",
			"see why it does not run: kubectl -n kube-system get pods -o wide --field-selector spec.nodeName=NODE; " +
				"crictl ps -a --name kube-proxy; where another program has taken over from it, remove its rules with kube-proxy --cleanup", ""},
		{"kubeproxy.process.stopped", checks.Fail, "kube-proxy's process is there and does not run",
			"a stopped one (T) goes on after kill -CONT PID; one in uninterruptible sleep (D) waits for the kernel: read /proc/PID/stack and " +
				"the kernel's log; a dead one (Z) waits for its parent, the container runtime", ""},
		{"kubeproxy.process.hung", checks.Fail, "kube-proxy accepts connections and does not answer",
			"take its goroutines before it is restarted: kill -ABRT PID writes them to its log, and ends it", ""},
		{"kubeproxy.process.silent", checks.Unknown, "kube-proxy runs, and its health could not be asked",
			"give its address with --healthz", ""},
		{"kubeproxy.watch.dead", checks.Fail, "kube-proxy says that it is healthy while its rules are old", quorum, "kubernetes#87615"},
		{"kubeproxy.watch.failing", checks.Fail, "kube-proxy cannot list or watch the API",
			"see why with the log line (credentials, certificate, network); then " + quorum, "kubernetes#87615"},
		{"kubeproxy.sync.unhealthy", checks.Fail, "kube-proxy says that it is not healthy",
			"read kube-proxy's log for the reason; then " + restart, ""},
		{"kubeproxy.sync.ineligible", checks.Warn, "kube-proxy reports its node as not eligible: deleted, or tainted for deletion",
			"nothing if the node is going away; else remove the taint ToBeDeletedByClusterAutoscaler", ""},
		{"kubeproxy.sync.never", checks.Fail, "kube-proxy has never written its rules",
			"read kube-proxy's log: until it has listed Services and EndpointSlices it writes nothing", ""},
		{"kubeproxy.sync.stuck", checks.Fail, "an update has waited too long: kube-proxy cannot write its rules",
			"read kube-proxy's log for the failing iptables-restore or nft; then " + restart, ""},
		{"kubeproxy.sync.dead", checks.Fail, "kube-proxy's loop has stopped", restart, ""},
		{"kubeproxy.sync.restore-failures", checks.Warn, "writing rules has failed before",
			"read kube-proxy's log for the failing iptables-restore or nft", ""},
		{"kubeproxy.sync.unreadable", checks.Unknown, "what kube-proxy's own endpoint answered could not be read",
			"ask again: curl -s localhost:10256/healthz, curl -s localhost:10249/metrics", ""},
	}
}

// Collector gathers findings and completes each from its kind.
type Collector struct {
	kinds []Kind
	List  []Finding
	count map[string]int
}

// maxPerKind bounds a report on hostile input.
const maxPerKind = 1000

// NewCollector returns an empty one.
func NewCollector() *Collector { return &Collector{count: map[string]int{}} }

// Addf adds a finding that is about no rule.
func (c *Collector) Addf(name, format string, args ...any) {
	c.Add(Finding{Name: name, Message: fmt.Sprintf(format, args...)})
}

// Add adds a finding. Verdict, remedy and reference default to those of its kind.
func (c *Collector) Add(f Finding) {
	if c.count[f.Name]++; c.count[f.Name] > maxPerKind {
		return
	}
	if c.kinds == nil { // most collectors find nothing
		c.kinds = Kinds()
	}
	k := Kind{}
	if i := slices.IndexFunc(c.kinds, func(k Kind) bool { return k.Name == f.Name }); i >= 0 {
		k = c.kinds[i]
	}
	if f.Verdict == checks.Unknown {
		f.Verdict = k.Verdict
	}
	if f.Remedy == "" {
		f.Remedy = k.Remedy
	}
	if f.Ref == "" {
		f.Ref = k.Ref
	}
	if f.Message == "" {
		f.Message = k.Summary
	}
	c.List = append(c.List, f)
}
