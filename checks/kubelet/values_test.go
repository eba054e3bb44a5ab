package kubelet_test

import (
	"context"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

// TestValues: the texts are those of kubelet 1.37.2, its lines joined as package program does; TestKubeletCauses gets them from kubelet.
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
	const other = "\nskipped\nskipped: kubelet, run for a trial, ends before it has looked at all values"
	ended := failed(`failed to run Kubelet: unable to acquire file lock on \"/\": is a directory`)
	wrong := func(why string) string {
		return "\nfail\nwant: values that kubelet accepts\ngot: " + why + "\nevidence: /usr/bin/kubelet: " + why +
			"\nremedy: correct the value; a feature gate that is gone is always on, or its feature was taken out: take it out of featureGates"
	}
	const cut = "failed to load kubelet config file, path: /c, error: failed to decode: json: cannot unmarshal string into Go struct field "
	slow := node("", "v1.37.2", "")
	slow.Refuse = map[string]error{"x /usr/bin/kubelet": context.DeadlineExceeded}
	unread := node("", "v1.37.2", failed("failed to load kubelet config file"))
	delete(unread.Files, kubeadmConfig)
	checkstest.RunOne(t, "kubelet.values", checks.Boot, []checkstest.Case{
		{What: "as it should be", Node: node("", "v1.37.2", ended), Want: right},
		{What: "a feature gate that is gone", Node: node("", "v1.37.2", "panic: failed to merge global and in-flight KubeletConfiguration while "+
			"setting defaults, error: unrecognized feature gate: Foo; ; goroutine 1 [running]:; k8s.io/kubernetes/pkg"),
			Want: wrong("failed to merge global and in-flight KubeletConfiguration while setting defaults, error: unrecognized feature gate: Foo")},
		{What: "out of bounds", Node: node("", "v1.37.2", failed("failed to validate kubelet configuration, error: invalid configuration: maxPods "+
			"(--max-pods) -1 must not be a negative number, path: &TypeMeta{Kind:,APIVersion:,}")), Want: wrong("failed to validate kubelet " +
			"configuration, error: invalid configuration: maxPods (--max-pods) -1 must not be a negative number")},
		{What: "another type", Node: node("", "v1.31.4", failed(cut+`KubeletConfiguration.maxPods of type \"int32\"`)),
			Want: wrong(cut + `KubeletConfiguration.maxPods of type "int32"`)},
		{What: "a log in JSON", Node: node("", "v1.31.4", `{"ts":1764090,"msg":"command failed","err":"initialize logging: format: none"}`),
			Want: wrong("initialize logging: format: none")},
		{What: "cgroup v1 is said elsewhere", Node: node("", "v1.37.2", failed("failed to validate kubelet configuration, error: kubelet is "+
			"configured to not run on a host using cgroup v1. It is unsupported, path: &TypeMeta{Kind:,APIVersion:,}")), Want: other},
		{What: "a specifier that is known to systemd alone", Node: node(" --node-labels=host=%H", "v1.37.2", failed("invalid node labels")),
			Want: "\nskipped\nskipped: kubelet's command line has a specifier of systemd"},
		{What: "a share", Node: node(" --eviction-hard=nodefs.available<10%%,imagefs.available<5%%", "v1.37.2", ended), Want: right},
		{What: "over the trial's own certificate", Node: node("", "v1.40.0", failed("failed to construct kubelet dependencies: missing content for "+
			"serving cert")), Want: other},
		{What: "a later kubelet lacks a flag of the trial", Node: node("", "v1.40.0", failed("failed to parse kubelet flag: unknown flag: --lock-file")),
			Want: other},
		{What: "a flag's value", Node: node(" --max-pods=many", "v1.37.2", failed(`failed to parse kubelet flag: invalid argument \"many\"`)),
			Want: wrong(`failed to parse kubelet flag: invalid argument "many"`)},
		{What: "a flag's value, which kubelet.flags says", Node: node(" --foo=many", "v1.37.2",
			failed(`failed to parse kubelet flag: invalid argument \"many\"`)), Want: "\nskipped\nskipped: kubelet.flags says so"},
		{What: "no end", Node: slow, Want: "skipped\nskipped: kubelet, run for a trial, does not end"},
		{What: "an old one is not run", Node: node("", "v1.30.9", failed("initialize logging: x")),
			Want: "skipped\nskipped: kubelet is older than 1.31, is not here, or does not say its version"},
		{What: "what kubelet looks at later, whatever its version", Node: withUnit("--config="+kubeadmConfig+" --node-ip=10.0.0.1,10.0.0.2",
			map[string]string{kubeadmConfig: header + "containerLogMaxSize: 500m\nallowedUnsafeSysctls: [vm.swappiness, net.core.somaxconn]\n"}),
			Want: `
fail
want: values that kubelet accepts
got: containerLogMaxSize is "500m", no whole quantity such as 10Mi; allowedUnsafeSysctls has vm.swappiness, which a Pod cannot have for itself; ` +
				`--node-ip=10.0.0.1,10.0.0.2 is neither one address nor one of each family
evidence: /var/lib/kubelet/config.yaml: containerLogMaxSize: 500m
evidence: /var/lib/kubelet/config.yaml: allowedUnsafeSysctls: vm.swappiness,net.core.somaxconn
evidence: /usr/lib/systemd/system/kubelet.service: --node-ip=10.0.0.1,10.0.0.2
remedy: correct the value; a feature gate that is gone is always on, or its feature was taken out: take it out of featureGates`},
		{What: "no address, of two", Node: node(" --node-ip=::,10.0.0.1", "v1.30.9", ""), Want: `
fail
want: values that kubelet accepts
got: --node-ip=::,10.0.0.1 has an address that is none
evidence: /usr/lib/systemd/system/kubelet.service: --node-ip=::,10.0.0.1
remedy: correct the value; a feature gate that is gone is always on, or its feature was taken out: take it out of featureGates`},
		{What: "no file", Node: unread, Want: "skipped\nskipped: kubelet cannot read its configuration, see kubelet.config"},
	})
}
