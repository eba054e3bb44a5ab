package audit

import (
	"context"
	"net/netip"
	"time"

	"nodegate/internal/audit/kubeproxy"
	"nodegate/internal/audit/path"
	"nodegate/internal/audit/proxy"
	"nodegate/internal/audit/settle"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
)

// What an audit reads and returns.
type (
	Finding   = proxy.Finding
	Judgment  = proxy.Judgment
	Kind      = proxy.Kind
	Options   = proxy.Options
	Service   = proxy.Service
	Endpoint  = proxy.Endpoint
	Trace     = proxy.Trace
	TraceStep = proxy.TraceStep
	TraceWay  = proxy.TraceWay
	Progress  = settle.Progress
	Converged = settle.Converged
)

// DeletePod is the command in a remedy that restarts kube-proxy if it runs in a DaemonSet.
const DeletePod = proxy.DeletePod

// No answers that an address is not one of the node's, in Options.Own.
const No = path.No

// Kinds returns all kinds of findings.
func Kinds() []Kind { return proxy.Kinds() }

// CheckOf returns the check that reports a finding without the API, or "".
func CheckOf(finding string) string { return proxy.CheckOf(finding) }

// Judge checks kube-proxy's rules.
func Judge(sets []*ruleset.Set, opts Options) Judgment { return proxy.Judge(sets, opts) }

// Traces follows packets from a sender to each port of a Service.
func Traces(rep *Judgment, sets []*ruleset.Set, opts *Options, service, from string) ([]Trace, error) {
	return proxy.Traces(rep, sets, opts, service, from)
}

// Reach returns the rules of other programs on the node that take packets before kube-proxy's rules.
func Reach(ctx context.Context, h *host.Host, sets []*ruleset.Set) (mode string, found []Finding) {
	var opts Options
	AddNetwork(ctx, h, &opts)
	return proxy.Reach(sets, opts)
}

// SplitServicePort splits NAMESPACE/NAME[:PORT].
func SplitServicePort(s string) (namespace, name, port string) { return proxy.SplitServicePort(s) }

// InvalidDrop returns the rules of KUBE-FORWARD that drop packets of no connection, and accept marked ones.
func InvalidDrop(filter *ruleset.Table) (drop, accept *ruleset.Rule) {
	return proxy.InvalidDrop(filter)
}

// BareDrops returns the rules of kube-proxy's chains that drop every packet.
func BareDrops(filter *ruleset.Table) []*ruleset.Rule { return proxy.BareDrops(filter) }

// Page reads one small page of a program on this node.
func Page(ctx context.Context, address string) (body []byte, status int, err error) {
	return kubeproxy.Page(ctx, address)
}

// RestartOn returns a remedy with the command that restarts kube-proxy as it runs on this node.
func RestartOn(h *host.Host, remedy string) string { return kubeproxy.RestartOn(h, remedy) }

// DelayBounds returns the upper bounds of the histogram of Progress.
func DelayBounds() []time.Duration { return settle.DelayBounds() }

// Step is a rule or policy that a packet meets, and Packet a set of packets.
type (
	Packet = path.Packet
	Step   = path.Step
)

// PodRange returns the addresses of this node's Pods, as the rules show them.
func PodRange(sets []*ruleset.Set, family string) netip.Prefix { return path.PodRange(sets, family) }

// EnforcesPolicies reports whether the owner of a rule is a program that enforces NetworkPolicies.
func EnforcesPolicies(owner string) bool { return path.EnforcesPolicies(owner) }

// Delivered returns the step that certainly drops a new packet to this node itself, from a Pod if it has a source,
// otherwise from another machine.
func Delivered(sets []*ruleset.Set, family string, p Packet) (step Step, lost bool) {
	p.State = path.StateNew
	node := path.Node{Elsewhere: path.NotOfUplink}
	if p.Source.IsValid() {
		node.Elsewhere = path.NotOfPods
	}
	step, _, lost = path.DropsSurely(path.New(sets, family, node).Delivered(p))
	return step, lost
}
