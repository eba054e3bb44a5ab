package kubelet_test

import (
	"context"
	"errors"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

// TestValues uses the messages of kubelet 1.37.2, with lines joined as package program does. TestKubeletCauses gets
// them from a real kubelet.
func TestValues(t *testing.T) {
	node := func(arguments, version, said string) *hosttest.Machine {
		m := withUnit("--config="+kubeadmConfig+arguments, map[string]string{kubeadmConfig: header})
		m.Version = map[string]string{"/usr/bin/kubelet": "Kubernetes " + version}
		m.Said = map[string]string{"/usr/bin/kubelet": "/usr/bin/kubelet: Flag --tls-cert-file has been deprecated; " + said}
		return m
	}
	failed := func(err string) string {
		return `E1125 17:02:21.489293 56 run.go:72] "command failed" err="` + err + `"`
	}
	const right = "\npass\nwant: values that kubelet accepts\ngot: values that kubelet accepts"
	const other = "\nskipped\nskipped: the trial run of kubelet exited before it validated all values"
	ended := failed(`failed to run Kubelet: unable to acquire file lock on \"/\": is a directory`)
	wrong := func(why string) string {
		return "\nfail\nwant: values that kubelet accepts\ngot: " + why + "\nevidence: /usr/bin/kubelet: " + why +
			"\nremedy: correct the value, or remove the flag; if a feature gate was removed, remove it from featureGates: its feature is always on or gone"
	}
	in := func(why, source, text string) string {
		return "\nfail\nwant: values that kubelet accepts\ngot: " + why + "\nevidence: /usr/bin/kubelet: " + why + "\nevidence: " + source + ": " + text +
			"\nremedy: correct it in " + source + ", or remove it; the feature of a removed feature gate is always on or gone"
	}
	const cut = "failed to load kubelet config file, path: /etc/c, error: failed to decode: json: cannot unmarshal string into Go struct field "
	gate := func(said string) *hosttest.Machine { // the names of gates come from the configuration
		m := node("", "v1.37.2", said)
		m.Files[kubeadmConfig] += "featureGates:\n  Foo: true\n"
		return m
	}
	const labels = "failed to validate kubelet flags: unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [node-role.kubernetes.io/worker]"
	slow := node("", "v1.37.2", "")
	slow.Refuse = map[string]error{"x /usr/bin/kubelet": context.DeadlineExceeded}
	old := node("", "v1.30.9", failed("initialize logging: x"))
	old.Refuse = map[string]error{"x /usr/bin/kubelet": errors.New("an old kubelet was run")}
	unread := node("", "v1.37.2", failed("failed to load kubelet config file"))
	delete(unread.Files, kubeadmConfig)
	checkstest.RunOne(t, "kubelet.values", checks.Boot, []checkstest.Case{
		{What: "as it should be", Node: node("", "v1.37.2", ended), Want: right},
		{What: "a removed feature gate", Node: gate("panic: failed to merge global and in-flight KubeletConfiguration while " +
			"setting defaults, error: unrecognized feature gate: Foo; ; goroutine 1 [running]:; k8s.io/kubernetes/pkg"),
			Want: in("failed to merge global and in-flight KubeletConfiguration while setting defaults, error: unrecognized feature gate: Foo", kubeadmConfig+":4", "featureGates.Foo: true")},
		{What: "out of bounds", Node: node("", "v1.37.2", failed("failed to validate kubelet configuration, error: invalid configuration: maxPods "+
			"(--max-pods) -1 must not be a negative number, path: &TypeMeta{Kind:,APIVersion:,}")), Want: wrong("failed to validate kubelet " +
			"configuration, error: invalid configuration: maxPods (--max-pods) -1 must not be a negative number")},
		{What: "another type", Node: node("", "v1.31.4", failed(cut+`KubeletConfiguration.maxPods of type \"int32\"`)),
			Want: wrong(cut + `KubeletConfiguration.maxPods of type "int32"`)},
		{What: "a log in JSON", Node: node("", "v1.31.4", `{"ts":1764090,"msg":"command failed","err":"initialize logging: format: none"}`),
			Want: wrong("initialize logging: format: none")},
		{What: "cgroup v1 is reported by another check", Node: node("", "v1.37.2", failed("failed to validate kubelet configuration, error: kubelet is "+
			"configured to not run on a host using cgroup v1. It is unsupported, path: &TypeMeta{Kind:,APIVersion:,}")), Want: other},
		{What: "a specifier that only systemd can resolve", Node: node(" --node-labels=host=%H", "v1.37.2", failed("invalid node labels")),
			Want: "\nskipped\nskipped: kubelet's command line has an unresolved systemd specifier"},
		{What: "a percentage", Node: node(" --eviction-hard=nodefs.available<10%%,imagefs.available<5%%", "v1.37.2", ended), Want: right},
		{What: "an error over the trial's own certificate", Node: node("", "v1.40.0", failed("failed to construct kubelet dependencies: missing content for "+
			"serving cert")), Want: other},
		{What: "a later kubelet lacks a flag of the trial", Node: node("", "v1.40.0", failed("failed to parse kubelet flag: unknown flag: --lock-file")),
			Want: other},
		{What: "a flag's value", Node: node(" --max-pods=many", "v1.37.2", failed(`failed to parse kubelet flag: invalid argument \"many\"`)),
			Want: wrong(`failed to parse kubelet flag: invalid argument "many"`)},
		{What: "a removed flag", Node: node(" --network-plugin=cni", "v1.37.2", failed("failed to parse kubelet flag: unknown flag: --network-plugin")),
			Want: in("failed to parse kubelet flag: unknown flag: --network-plugin", "/usr/lib/systemd/system/kubelet.service:2", "--network-plugin=cni")},
		{What: "a role as a label", Node: node(" --node-labels=node-role.kubernetes.io/worker=", "v1.37.2", failed(labels)), Want: in(labels, "/usr/lib/systemd/system/kubelet.service:2", "--node-labels=node-role.kubernetes.io/worker=")},
		{What: "a role as a label, which OpenShift's kubelet accepts", Node: node(" --node-labels=node-role.kubernetes.io/worker=", "v1.31.7", ended), Want: right},
		{What: "kubelet does not exit", Node: slow, Want: "skipped\nskipped: the trial run of kubelet did not exit"},
		{What: "an old kubelet is not run", Node: old,
			Want: "skipped\nskipped: kubelet is older than 1.31, not installed, or does not report its version"},
		{What: "no file", Node: unread, Want: "skipped\nskipped: kubelet cannot read its configuration, see kubelet.config"},
	})
}
