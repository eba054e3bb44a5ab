package proxy

import "nodegate/internal/verdict"

// Kind describes one kind of finding.
type Kind struct {
	Name    string          `json:"name"`
	Verdict verdict.Verdict `json:"verdict"`
	Summary string          `json:"summary"`
	Remedy  string          `json:"remedy"`
	Ref     string          `json:"ref,omitempty"`
}

// Remedies that many findings share. They are commands for the operator to paste; nodegate never runs
// them. NODE stands for the name of the node.
const (
	// DeletePod restarts kube-proxy in the DaemonSet of kubeadm. On a node where it runs differently, the remedy has another command.
	DeletePod = "kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE"
	restart   = "restart kube-proxy (rules stay in place): `" + DeletePod + "`"
	whoElse   = "find the other program that changes iptables rules on this node (firewalld, another kube-proxy, a cleanup script), then " +
		restart
	resync = "restart kube-proxy so that it lists the API again (rules stay in place): " +
		"`kubectl cordon NODE; " +
		"kubectl annotate node NODE cluster-autoscaler.kubernetes.io/scale-down-disabled=true; " +
		DeletePod + "`; after an audit passes, run `kubectl uncordon NODE`"
)

// partial is the kind of rules that cannot be judged as they are.
const partial = "kubeproxy.rules.partial"

// otherMode is the remedy after a switch of kube-proxy's mode.
const otherMode = "remove the rules of the other mode (run `kube-proxy --cleanup`, then restart kube-proxy), or reboot"

// removeRule is the remedy for a rule of another program.
const removeRule = "remove the rule that the finding names, and change the program that adds it, or it comes back"

const (
	refIptables = "kubernetes pkg/proxy/iptables/proxier.go"
	refNFT      = "kubernetes pkg/proxy/nftables/proxier.go"
)

// broken is the kind of a rule that kube-proxy itself writes again.
func broken(name, summary string) Kind {
	return Kind{name, verdict.Fail, summary, restart, refIptables}
}

// stale is the kind of a difference from the API.
func stale(name, summary string) Kind {
	return Kind{name, verdict.Fail, summary, resync, "kubernetes#87615"}
}

// Kinds lists every finding that this package can make.
func Kinds() []Kind {
	return append(ruleKinds(), truthKinds()...)
}

func ruleKinds() []Kind {
	return []Kind{
		{"kubeproxy.rules.absent", verdict.Unknown, "no kube-proxy rules found",
			"run the audit on a node with kube-proxy, or read all backends: `iptables-nft-save`, `iptables-legacy-save`, `nft -j list ruleset`", ""},
		{"kubeproxy.rules.deleted", verdict.Fail,
			"another program deleted all of kube-proxy's rules: no Service works on this node, although kube-proxy reports that it is healthy",
			whoElse, refIptables},
		{partial, verdict.Unknown, "the input is only a part of the rules, has replaced names or addresses, or is of a release before 1.25",
			"save all rules: run `iptables-save > rules.txt`, and ip6tables-save for IPv6", ""},
		{"kubeproxy.mode.ipvs", verdict.Unknown, "kube-proxy uses IPVS mode; its rules cannot be judged without the node's kernel and the API",
			"run the audit on the node with API access: --kubeconfig, --in-cluster, or --services and --endpoints", ""},
		{"kubeproxy.ipvs.left-reject", verdict.Fail,
			"rules that iptables mode left reject connections to a Service that has endpoints in IPVS mode",
			"delete the rules that iptables mode left: `iptables -F KUBE-SERVICES; iptables -F KUBE-EXTERNAL-SERVICES` (for IPv6 ip6tables; " +
				"table filter only)", "kubernetes#102314"},
		{"kubeproxy.backend.mixed", verdict.Fail,
			"a second backend still contains kube-proxy rules: connections to Services may follow stale rules to endpoints that no longer exist",
			"use one iptables backend for kube-proxy, kubelet and the host (`update-alternatives --config iptables`), then reboot, or flush " +
				"the KUBE chains of the other backend", "kubernetes#109811"},
		{"kubeproxy.backend.kubelet", verdict.Warn, "kubelet and kube-proxy use different iptables backends",
			"use one iptables backend in the kube-proxy image and on the host (`update-alternatives --config iptables`), then restart kubelet " +
				"and kube-proxy", "kubernetes#109811"},
		{"kubeproxy.table.missing", verdict.Unknown, "a table is missing from the save", "save all tables: run `iptables-save` without -t", ""},
		{"kubeproxy.table.flushed", verdict.Fail,
			"kube-proxy's rules in one table were deleted: connections to Services fail or get no answer", whoElse, refIptables},
		{"kubeproxy.table.unwritten", verdict.Fail,
			"kube-proxy has not written its rules in one table yet: connections to Services fail or get no answer",
			"find out from its log why kube-proxy waits (usually the API server does not answer): `kubectl -n kube-system logs -l " +
				"k8s-app=kube-proxy --prefix`, or `crictl logs` on the node; a restart does not help", refIptables},
		{"kubeproxy.canary.missing", verdict.Warn, "chain KUBE-PROXY-CANARY is missing: another program deleted rules",
			"wait 30 s: kube-proxy repairs this within its sync period; otherwise " + restart, "kubernetes#81517"},
		{"kubeproxy.jump.missing", verdict.Fail,
			"packets do not reach kube-proxy's rules: connections to Services fail or are not accepted", whoElse, refIptables},
		{"kubeproxy.way.service", verdict.Fail,
			"connections to Services fail: a rule, route or routing rule of another program loses their packets", removeRule, ""},
		{"kubeproxy.way.forward", verdict.Fail,
			"packets of Pods, of the node or of other machines are lost: a rule, route or routing rule of another program loses them",
			removeRule, ""},
		broken("kubeproxy.chain.damaged", "a rule of kube-proxy is missing, altered or too many"),
		{"kubeproxy.chain.unreferenced", verdict.Warn,
			"unused chains are left over: no connection reaches them (normal only above 1000 endpoints)", restart, refIptables},
		{"kubeproxy.rule.unreadable", verdict.Unknown, "this host's iptables is too old to print the rule",
			"read the rules with the iptables of the kube-proxy image; do not judge endpoints by this output",
			"kubernetes#95409, kubernetes#114537"},
		{"kubeproxy.masquerade.double-snat", verdict.Warn, "the old form of KUBE-POSTROUTING masquerades VXLAN packets twice",
			"upgrade kube-proxy to 1.16.13, 1.17.9, 1.18.6 or later; or use a kernel with the fix (5.7, 5.4.41, 4.19.123, 4.14.181); or turn " +
				"off tx-checksum-ip-generic on the VXLAN link", "kubernetes#92035"},
		{"kubeproxy.masquerade.random-fully", verdict.Warn,
			"MASQUERADE lacks --random-fully: under load source ports collide, and some connections are delayed or fail",
			"use a kube-proxy image with iptables 1.6.2 or later", "kubernetes#78547"},
		{"kubeproxy.forward.invalid-drop", verdict.Fail,
			"INVALID packets are not dropped and reset their connections: long transfers through Services sometimes break",
			"run `sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1`, or " + restart, "kubernetes#74840, kubernetes#120412"},
		{"kubeproxy.forward.be-liberal", verdict.Unknown,
			"no rule drops INVALID packets; whether nf_conntrack_tcp_be_liberal replaces it is unknown",
			"check that `sysctl -n net.netfilter.nf_conntrack_tcp_be_liberal` prints 1; if not, set it to 1, or " + restart, "kubernetes#120412"},
		{"kubeproxy.firewall.bare-drop", verdict.Fail,
			"KUBE-FIREWALL drops every packet of this node: a rule lost its mark match between iptables versions",
			"run `iptables -D KUBE-FIREWALL -j DROP`, then use the same iptables version for kubelet and the host (1.8.8 and later lose the " +
				"match when 1.8.7 rewrites the rule)", "kubernetes#112477"},
		{"kubeproxy.service.duplicate", verdict.Fail, "two Services use the same address and port: the first gets all connections",
			"change the address or port of one Service (the API does not compare externalIPs); if only one Service uses it, " + restart,
			refIptables},
		broken("kubeproxy.service.reject",
			"connections to a Service without endpoints are not rejected as they should be: clients wait for a timeout, or fail when they "+
				"should wait"),
		broken("kubeproxy.affinity.set", "session affinity does not cover exactly the endpoints of a Service: some clients change endpoint"),
	}
}

func truthKinds() []Kind {
	return []Kind{
		stale("kubeproxy.truth.endpoint-stale", "some connections to a Service go to endpoints that the API no longer has"),
		stale("kubeproxy.truth.endpoint-missing", "the rules lack endpoints of a Service: they get no connections from this node"),
		stale("kubeproxy.truth.service-stale", "this node still serves a Service that the API no longer has"),
		stale("kubeproxy.truth.service-missing", "this node does not serve a Service that the API has"),
		{"kubeproxy.truth.family-missing", verdict.Fail,
			"this node has no rules for an address family of Services in the API: connections to them fail", whoElse, refNFT},
		stale("kubeproxy.truth.service-address", "the addresses or ports at which this node serves a Service differ from the API"),
		stale("kubeproxy.truth.service-policy", "the traffic policy or session affinity of a Service on this node differs from the API"),
		stale("kubeproxy.truth.source-ranges",
			"the clients that this node admits to a load balancer address differ from loadBalancerSourceRanges in the API"),
		{"kubeproxy.truth.unsettled", verdict.Unknown,
			"the rules differ from the API, but the audit ended before that was certain", "run the audit again with a longer --timeout", ""},
		{"kubeproxy.truth.unanswered", verdict.Unknown, "the API server did not answer: the rules were not compared with the API",
			"check that the API server is up, and that the kubeconfig's user may list and watch Services and EndpointSlices", ""},
		{"kubeproxy.conntrack.stale-flow", verdict.Fail, "conntrack still sends flows to endpoints that the API no longer has",
			"delete these flows: `conntrack -D` with their Service address and endpoint", "kubernetes#139628"},
		{"kubeproxy.conntrack.unread", verdict.Unknown,
			"could not read conntrack's flows", "run the audit as root on the node itself, with a kernel that has nf_conntrack_netlink", ""},
		{"kubeproxy.process.absent", verdict.Fail, "kube-proxy does not run, but its rules exist: no program updates them",
			"find out why it does not run: `kubectl -n kube-system get pods -o wide --field-selector spec.nodeName=NODE`, `crictl ps -a --name " +
				"kube-proxy`; if another program replaces it, remove its rules with `kube-proxy --cleanup`", ""},
		{"kubeproxy.process.stopped", verdict.Fail, "kube-proxy's process exists but does not run",
			"if its state is T (stopped), run `kill -CONT PID`; if D (uninterruptible sleep), read /proc/PID/stack and the kernel log; if Z " +
				"(dead), check its parent, the container runtime", ""},
		{"kubeproxy.process.hung", verdict.Fail, "kube-proxy accepts connections but does not answer",
			"save its goroutines before a restart: `kill -ABRT PID` writes them to its log and ends the process", ""},
		{"kubeproxy.process.silent", verdict.Unknown,
			"kube-proxy runs, but its health endpoint could not be queried", "set its address with --healthz", ""},
		stale("kubeproxy.watch.dead", "kube-proxy reports that it is healthy, but its rules are stale"),
		{"kubeproxy.watch.failing", verdict.Fail, "kube-proxy cannot list or watch the API",
			"find the cause in kube-proxy's log (credentials, certificate, network): `kubectl -n kube-system logs -l " +
				"k8s-app=kube-proxy --prefix`; then " + resync, "kubernetes#87615"},
		{"kubeproxy.sync.unhealthy", verdict.Fail,
			"kube-proxy reports that it is unhealthy", "find the reason in kube-proxy's log; then " + restart, ""},
		{"kubeproxy.sync.ineligible", verdict.Warn, "kube-proxy reports that its node is not eligible: deleted, or tainted for deletion",
			"remove the taint ToBeDeletedByClusterAutoscaler; ignore this if the node is being deleted", ""},
		{"kubeproxy.sync.never", verdict.Fail,
			"kube-proxy has never written its rules", "read kube-proxy's log: it writes no rules until it has listed Services and EndpointSlices",
			""},
		{"kubeproxy.sync.stuck", verdict.Fail, "an update has waited too long: kube-proxy cannot write its rules",
			"find the failing iptables-restore or nft in kube-proxy's log; then " + restart, ""},
		{"kubeproxy.sync.dead", verdict.Fail, "kube-proxy's sync loop has stopped", restart, ""},
		{"kubeproxy.sync.restore-failures", verdict.Warn,
			"kube-proxy failed to write rules before", "find the failing iptables-restore or nft in kube-proxy's log", ""},
		{"kubeproxy.sync.unreadable", verdict.Unknown, "could not parse the answer of kube-proxy's own endpoint",
			"query it again: `curl -s localhost:10256/healthz`, `curl -s localhost:10249/metrics`", ""},
	}
}
