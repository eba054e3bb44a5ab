package proxyrules

import "nodegate/internal/verdict"

// Kind describes one kind of finding.
type Kind struct {
	Name    string          `json:"name"`
	Verdict verdict.Verdict `json:"verdict"`
	Summary string          `json:"summary"`
	Remedy  string          `json:"remedy"`
	Ref     string          `json:"ref,omitempty"`
}

// Remedies that many findings share. They are text to paste, never run from here. NODE stands for the node's name.
const (
	restart = "restart kube-proxy, which rewrites every rule (those that are there go on working meanwhile): " +
		"kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE"
	whoElse = "find what else writes iptables on this node (firewalld, another kube-proxy, a cleanup script), then " + restart
	quorum  = "restart this node's kube-proxy, which then hears of every change again; its rules go on working meanwhile: " +
		"kubectl cordon NODE; " +
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
		{"kubeproxy.rules.absent", verdict.Unknown, "the input has no rules of kube-proxy",
			"read the rules on a node where kube-proxy runs, with every backend: iptables-nft-save, iptables-legacy-save, " +
				"nft -j list ruleset", ""},
		{"kubeproxy.mode.ipvs", verdict.Unknown, "rules of kube-proxy's IPVS mode, which say nothing without the node's kernel and the API",
			"run the audit on the node, with the API: --kubeconfig, --in-cluster, or --services and --endpoints", ""},
		{"kubeproxy.backend.mixed", verdict.Fail,
			"rules of kube-proxy are left in a second backend: connections to Services may follow the old ones, to endpoints that are gone",
			"use one iptables backend for kube-proxy, kubelet and host (update-alternatives --config iptables), then reboot, or flush the " +
				"other backend's KUBE chains", "kubernetes#109811"},
		{"kubeproxy.backend.kubelet", verdict.Warn, "kubelet and kube-proxy use different iptables backends",
			"give the kube-proxy image and the host one iptables backend (update-alternatives --config iptables), then restart both",
			"kubernetes#109811"},
		{"kubeproxy.table.missing", verdict.Unknown, "a table is missing from the save", "save all tables: run iptables-save without -t", ""},
		{"kubeproxy.table.flushed", verdict.Fail,
			"somebody has deleted kube-proxy's rules of one table: connections to Services fail, or get no answer", whoElse, refIptables},
		{"kubeproxy.table.unwritten", verdict.Fail,
			"kube-proxy has not written its rules of one table: connections to Services fail, or get no answer",
			"see in kube-proxy's log why it waits, usually for an API server that does not answer: kubectl -n kube-system logs -l " +
				"k8s-app=kube-proxy --prefix, or on the node crictl logs; a restart does not help", refIptables},
		{"kubeproxy.canary.missing", verdict.Warn, "somebody has deleted rules: KUBE-PROXY-CANARY, by which kube-proxy notices that, is gone",
			"kube-proxy repairs this within its sync period (30 s); if it does not, " + restart, "kubernetes#81517"},
		{"kubeproxy.jump.missing", verdict.Fail, "packets do not come to kube-proxy's rules: connections to Services fail, or are not let through",
			whoElse, refIptables},
		{"kubeproxy.jump.loop", verdict.Fail, "rules lead in a circle: the connections that come there fail", restart, ""},
		{"kubeproxy.chain.undeclared", verdict.Fail, "a rule leads to rules that are not there: the connections that it is for fail",
			restart, refIptables},
		{"kubeproxy.chain.unreferenced", verdict.Warn, "rules are left over that no connection comes to (usual only above 1000 endpoints)",
			restart, refIptables},
		{"kubeproxy.chain.unexpected-rule", verdict.Fail,
			"a rule that kube-proxy does not write is among its own, and may catch connections to Services", whoElse, refIptables},
		{"kubeproxy.rule.unreadable", verdict.Unknown, "this host's iptables is too old to print the rule",
			"read the rules with the iptables of the kube-proxy image; do not judge endpoints by this output",
			"kubernetes#95409, kubernetes#114537"},
		{"kubeproxy.masquerade.mark", verdict.Fail,
			"connections to Services from outside the Pods' network get no answer: they are not marked to leave with this node's address",
			restart, refIptables},
		{"kubeproxy.masquerade.mismatch", verdict.Fail,
			"connections to Services from outside the Pods' network get no answer: rules use different mark bits for them",
			"give kube-proxy and kubelet the same iptablesMasqueradeBit, then " + restart, refIptables},
		{"kubeproxy.masquerade.postrouting", verdict.Fail,
			"connections do not leave with the source address that they need: answers bypass this node, or clients' addresses are lost",
			restart, refIptables},
		{"kubeproxy.masquerade.double-snat", verdict.Warn, "the old POSTROUTING form masquerades VXLAN packets a second time",
			"upgrade kube-proxy to 1.16.13, 1.17.9, 1.18.6 or later; else a kernel with the fix (5.7, 5.4.41, 4.19.123, 4.14.181), else " +
				"tx-checksum-ip-generic off on the VXLAN link", "kubernetes#92035"},
		{"kubeproxy.masquerade.random-fully", verdict.Warn,
			"MASQUERADE without --random-fully: under load source ports collide, and some connections are delayed or fail",
			"give kube-proxy iptables 1.6.2 or later", "kubernetes#78547"},
		{"kubeproxy.forward.invalid-drop", verdict.Fail,
			"late packets are not dropped, and reset their connections: long transfers through Services break now and then",
			"set net.netfilter.nf_conntrack_tcp_be_liberal=1, or " + restart, "kubernetes#74840, kubernetes#120412"},
		{"kubeproxy.forward.be-liberal", verdict.Unknown,
			"INVALID packets are not dropped by a rule; the sysctl that replaces it is not known here",
			"sysctl net.netfilter.nf_conntrack_tcp_be_liberal must print 1; else set it, or " + restart, "kubernetes#120412"},
		{"kubeproxy.forward.invalid-order", verdict.Fail, "late packets are let through before they are dropped, and reset their connections",
			restart, "kubernetes#74840"},
		{"kubeproxy.forward.accept", verdict.Fail, "connections to Services that this node forwards are dropped where policy FORWARD is DROP",
			restart, refIptables},
		{"kubeproxy.firewall.bare-drop", verdict.Fail,
			"KUBE-FIREWALL drops every packet of this node: the mark match was lost between iptables versions",
			"use the same iptables version for kubelet and host (1.8.8 and later lose the match when 1.8.7 rewrites the rule): " +
				"iptables -D KUBE-FIREWALL -j DROP, then upgrade", "kubernetes#112477"},
		{"kubeproxy.firewall.localnet", verdict.Warn, "KUBE-FIREWALL does not stop others from reaching localhost Services",
			"restart kubelet; while route_localnet=1, 127.0.0.0/8 is open to the network", "kubernetes#90259"},
		{"kubeproxy.firewall.unpaired", verdict.Fail, "loadBalancerSourceRanges lets everybody in, or nobody: its rules do not pair",
			restart, "kubernetes#110289"},
		{"kubeproxy.nft.base-chain", verdict.Fail,
			"packets do not come to kube-proxy's rules, or at the wrong moment: connections to Services fail", restart, refNFT},
		{"kubeproxy.nft.map", verdict.Fail, "a map or set of table kube-proxy is missing: the connections that it directs fail", restart, refNFT},
		{"kubeproxy.nft.cluster-ips", verdict.Fail,
			"set cluster-ips is not exactly the ClusterIPs in use: connections to their other ports hang, or other addresses are rejected",
			restart, refNFT},
		{"kubeproxy.nft.hairpin-set", verdict.Fail,
			"set hairpin-connections has what no endpoint sends: a Pod that reaches itself by its Service may get no answer", restart, refNFT},
	}
}

func serviceKinds() []Kind {
	return []Kind{
		{"kubeproxy.service.hash", verdict.Fail, "connections to a Service are sent on by rules that have another Service's name",
			restart, refIptables},
		{"kubeproxy.service.address", verdict.Fail, "a Service's rules name different addresses or ports: connections to one of them fail",
			restart, refIptables},
		{"kubeproxy.service.duplicate", verdict.Fail,
			"one address and port is two Services': all connections go to the first",
			"give one of the two another address or port (the API does not compare externalIPs); where it has only one of them, " + restart,
			refIptables},
		{"kubeproxy.service.conflict", verdict.Fail, "connections to a Service are blocked in one place and sent to its endpoints in another",
			restart, refIptables},
		{"kubeproxy.service.reject", verdict.Fail,
			"connections to a Service without endpoints are not refused as they should be: clients wait, or do not wait", restart, refIptables},
		{"kubeproxy.service.masquerade", verdict.Fail,
			"connections to a Service from outside the Pods' network get no answer: it lacks the masquerading that others have",
			restart, refIptables},
		{"kubeproxy.service.portal", verdict.Fail,
			"no connection to a Service's ClusterIP is sent anywhere, though the rules for its endpoints are there", whoElse, refIptables},
		{"kubeproxy.service.portals", verdict.Fail, "no connection to any Service address is sent anywhere", whoElse, refIptables},
		{"kubeproxy.nodeports.order", verdict.Fail, "connections to some Service addresses may be taken for ones to node ports",
			restart, refIptables},
		{"kubeproxy.nodeports.condition", verdict.Fail, "node ports are not answered at exactly the addresses of this node", restart, refIptables},
		{"kubeproxy.nodeports.missing", verdict.Fail, "no connection to a node port is answered on this node", restart, refIptables},
		{"kubeproxy.external.empty", verdict.Fail,
			"no connection from outside to a Service is answered: node port, external or load balancer address", restart, refIptables},
		{"kubeproxy.external.masquerade", verdict.Fail,
			"connections from outside to a Service get no answer, or lose the client's address that policy Local keeps", restart, refIptables},
		{"kubeproxy.external.dispatch", verdict.Fail,
			"connections from outside to a Service do not reach its endpoints, or others than its policy wants", restart, refIptables},
		{"kubeproxy.external.pod", verdict.Fail,
			"Pods of this node do not reach a Service by its external addresses, or only the endpoints of this node", restart, refIptables},
		{"kubeproxy.external.order", verdict.Fail,
			"connections from outside to a Service are sent on before they are prepared for it: some get no answer", restart, refIptables},
		{"kubeproxy.dispatch.empty", verdict.Fail, "every connection to a Service is lost: no rule leads to an endpoint", restart, refIptables},
		{"kubeproxy.dispatch.shadowed", verdict.Fail, "some endpoints of a Service get no connections: an earlier rule takes all",
			restart, refIptables},
		{"kubeproxy.dispatch.last", verdict.Fail,
			"a part of the connections to a Service fails: no rule takes them", restart, refIptables},
		{"kubeproxy.dispatch.duplicate", verdict.Fail, "one endpoint of a Service gets twice its share of connections", restart, refIptables},
		{"kubeproxy.dispatch.probability", verdict.Fail, "the endpoints of a Service get unequal shares of its connections", restart, refIptables},
		{"kubeproxy.dispatch.condition", verdict.Fail,
			"a part of the connections to a Service is treated differently, by a condition that kube-proxy does not write", restart, refIptables},
		{"kubeproxy.dispatch.order", verdict.Fail, "some of a Service's rules come too late: its connections were sent on before",
			restart, refIptables},
		{"kubeproxy.dispatch.foreign", verdict.Fail, "a part of the connections to a Service goes to an endpoint of another Service",
			restart, refIptables},
		{"kubeproxy.dispatch.count", verdict.Fail,
			"a part of the connections to a Service fails, or an endpoint gets none: the rule counts on another number of endpoints",
			restart, refNFT},
		{"kubeproxy.dispatch.keys", verdict.Fail, "a part of the connections to a Service fails: no endpoint has their number", restart, refNFT},
		{"kubeproxy.affinity.set", verdict.Fail, "session affinity does not cover exactly a Service's endpoints: some clients change endpoint",
			restart, refIptables},
		{"kubeproxy.affinity.name", verdict.Fail, "session affinity sends clients to another endpoint than they had", restart, refIptables},
		{"kubeproxy.affinity.timeout", verdict.Fail, "session affinity lasts longer with some endpoints than with others, or never ends",
			restart, refIptables},
		{"kubeproxy.affinity.record", verdict.Fail, "session affinity never works with one endpoint: its clients are not remembered",
			restart, refIptables},
		{"kubeproxy.endpoint.empty", verdict.Fail, "connections meant for one endpoint of a Service go nowhere", restart, refIptables},
		{"kubeproxy.endpoint.hairpin", verdict.Fail,
			"a Pod that reaches itself by its Service gets no answer", restart, refIptables},
		{"kubeproxy.endpoint.dnat", verdict.Fail, "connections meant for one endpoint of a Service go nowhere, or to another address",
			restart, refIptables},
		{"kubeproxy.endpoint.order", verdict.Fail, "connections meant for one endpoint are sent on before they are prepared for it",
			restart, refIptables},
		{"kubeproxy.endpoint.hash", verdict.Fail,
			"connections meant for one endpoint of a Service go by rules that have another name: they may be another endpoint's, or stale",
			restart, refIptables},
		{"kubeproxy.endpoint.protocol", verdict.Fail, "connections to one endpoint of a Service are not sent on: its rule is for another protocol",
			restart, refIptables},
	}
}

func truthKinds() []Kind {
	return []Kind{
		{"kubeproxy.truth.endpoint-stale", verdict.Fail, "a part of the connections to a Service goes to endpoints that the API no longer has",
			quorum, "kubernetes#87615"},
		{"kubeproxy.truth.endpoint-missing", verdict.Fail,
			"a Service's endpoints of the API get no connections from this node: the rules lack them", quorum, "kubernetes#87615"},
		{"kubeproxy.truth.service-stale", verdict.Fail, "this node still serves a Service that the API no longer has", quorum, "kubernetes#87615"},
		{"kubeproxy.truth.service-missing", verdict.Fail, "this node does not serve a Service that the API has", quorum, "kubernetes#87615"},
		{"kubeproxy.truth.family-missing", verdict.Fail,
			"this node has no rules at all for an address family in which the API has Services: connections to them fail", whoElse, refNFT},
		{"kubeproxy.truth.service-address", verdict.Fail,
			"this node does not serve a Service at exactly the addresses and ports that it has in the API", quorum,
			"kubernetes#87615"},
		{"kubeproxy.truth.service-policy", verdict.Fail,
			"this node chooses endpoints by another traffic policy or session affinity than the Service has in the API",
			quorum, "kubernetes#87615"},
		{"kubeproxy.truth.source-ranges", verdict.Fail,
			"this node lets others use a load balancer's address than loadBalancerSourceRanges does in the API", quorum,
			"kubernetes#87615"},
		{"kubeproxy.truth.unsettled", verdict.Unknown, "the rules differ from the API, and the audit ended before that was certain",
			"audit again, with a longer --timeout", ""},
		{"kubeproxy.truth.unanswered", verdict.Unknown, "the API server did not answer: the rules are compared with nothing",
			"see whether the API server is up, and whether the kubeconfig's credentials may list and watch Services and EndpointSlices", ""},
		{"kubeproxy.healthport.closed", verdict.Fail, "kube-proxy does not listen on a Service's health check node port",
			"see who has the port: ss -ltnp; kube-proxy tries again whenever it writes its rules", ""},
		{"kubeproxy.healthport.unread", verdict.Unknown, "whether kube-proxy listens on health check node ports could not be seen",
			"run audit as root on the node itself", ""},
		{"kubeproxy.conntrack.stale-flow", verdict.Fail, "conntrack still sends flows to endpoints that the API no longer has",
			"make conntrack forget these flows: conntrack -D with their Service and endpoint", "kubernetes#139628"},
		{"kubeproxy.conntrack.unread", verdict.Unknown, "conntrack's flows could not be read",
			"run audit as root on the node itself, with a kernel that has nf_conntrack_netlink", ""},
		{"kubeproxy.process.absent", verdict.Fail, "there are rules of kube-proxy, and no kube-proxy: nobody changes them",
			"see why it does not run: kubectl -n kube-system get pods -o wide --field-selector spec.nodeName=NODE; " +
				"crictl ps -a --name kube-proxy; where another program has taken over from it, remove its rules with kube-proxy --cleanup", ""},
		{"kubeproxy.process.stopped", verdict.Fail, "kube-proxy's process is there and does not run",
			"a stopped one (T) goes on after kill -CONT PID; one in uninterruptible sleep (D) waits for the kernel: read /proc/PID/stack and " +
				"the kernel's log; a dead one (Z) waits for its parent, the container runtime", ""},
		{"kubeproxy.process.hung", verdict.Fail, "kube-proxy accepts connections and does not answer",
			"take its goroutines before it is restarted: kill -ABRT PID writes them to its log, and ends it", ""},
		{"kubeproxy.process.silent", verdict.Unknown, "kube-proxy runs, and its health could not be asked",
			"give its address with --healthz", ""},
		{"kubeproxy.watch.dead", verdict.Fail, "kube-proxy says that it is healthy while its rules are old", quorum, "kubernetes#87615"},
		{"kubeproxy.watch.failing", verdict.Fail, "kube-proxy cannot list or watch the API",
			"see why with the log line (credentials, certificate, network); then " + quorum, "kubernetes#87615"},
		{"kubeproxy.sync.unhealthy", verdict.Fail, "kube-proxy says that it is not healthy",
			"read kube-proxy's log for the reason; then " + restart, ""},
		{"kubeproxy.sync.ineligible", verdict.Warn, "kube-proxy reports its node as not eligible: deleted, or tainted for deletion",
			"nothing if the node is going away; else remove the taint ToBeDeletedByClusterAutoscaler", ""},
		{"kubeproxy.sync.never", verdict.Fail, "kube-proxy has never written its rules",
			"read kube-proxy's log: until it has listed Services and EndpointSlices it writes nothing", ""},
		{"kubeproxy.sync.stuck", verdict.Fail, "an update has waited too long: kube-proxy cannot write its rules",
			"read kube-proxy's log for the failing iptables-restore or nft; then " + restart, ""},
		{"kubeproxy.sync.dead", verdict.Fail, "kube-proxy's loop has stopped", restart, ""},
		{"kubeproxy.sync.restore-failures", verdict.Warn, "writing rules has failed before",
			"read kube-proxy's log for the failing iptables-restore or nft", ""},
		{"kubeproxy.sync.unreadable", verdict.Unknown, "what kube-proxy's own endpoint answered could not be read",
			"ask again: curl -s localhost:10256/healthz, curl -s localhost:10249/metrics", ""},
	}
}
