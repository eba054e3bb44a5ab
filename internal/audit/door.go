package audit

import (
	"context"

	"nodegate/internal/audit/kubeproxy"
	"nodegate/internal/audit/proxy"
	"nodegate/internal/audit/settle"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
)

// What an audit reads and returns.
type (
	Finding  = proxy.Finding
	Judgment = proxy.Judgment
	Kind     = proxy.Kind
	Options  = proxy.Options
	Service  = proxy.Service
	Endpoint = proxy.Endpoint
	Progress = settle.Progress
)

// DeletePod is the command in a remedy that restarts kube-proxy if it runs in a DaemonSet.
const DeletePod = proxy.DeletePod

// Kinds returns all kinds of findings.
func Kinds() []Kind { return proxy.Kinds() }

// CheckOf returns the check that reports a finding without the API, or "".
func CheckOf(finding string) string { return proxy.CheckOf(finding) }

// Judge checks kube-proxy's rules.
func Judge(sets []*ruleset.Set, opts Options) Judgment { return proxy.Judge(sets, opts) }

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
