package kubelet_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
)

const kubeadmConfig, eksConfig = "/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet/config.json"

func TestInotifyLimits(t *testing.T) {
	low := map[string]string{"fs/inotify/max_user_watches": "524288", "fs/inotify/max_user_instances": "128"}
	checkstest.RunOne(t, "inotify.limits", checks.Run, []checkstest.Case{
		{What: "the default", Node: checkstest.Node(nil, low), Want: `warn
want: max_user_watches>=524288 max_user_instances>=512
got: max_user_watches=524288 max_user_instances=128
evidence: /proc/sys/fs/inotify/max_user_watches: 524288
evidence: /proc/sys/fs/inotify/max_user_instances: 128
remedy: run ` + "`sysctl -w fs.inotify.max_user_instances=8192`" + `, and add it to the policy`},
		{What: "the policy has the requirement", Node: checkstest.Node(nil, low),
			Policy: "sysctl \"fs.inotify.max_user_instances\" { min = 512 }", Want: `warn
want: max_user_watches>=524288 max_user_instances>=512
got: max_user_watches=524288 max_user_instances=128
because: sysctl.fs.inotify.max_user_instances
evidence: /proc/sys/fs/inotify/max_user_watches: 524288
evidence: /proc/sys/fs/inotify/max_user_instances: 128
remedy: run ` + "`sysctl -w fs.inotify.max_user_instances=8192`" + `, and add it to the policy`},
		{What: "kops", Node: checkstest.Node(nil, map[string]string{"fs/inotify/max_user_watches": "1048576",
			"fs/inotify/max_user_instances": "8192"}), Want: `pass
want: max_user_watches>=524288 max_user_instances>=512
got: max_user_watches=1048576 max_user_instances=8192
evidence: /proc/sys/fs/inotify/max_user_watches: 1048576
evidence: /proc/sys/fs/inotify/max_user_instances: 8192`},
	})
}

func TestProtectKernelDefaults(t *testing.T) {
	good := map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	}
	bad := maps.Clone(good)
	bad["vm/overcommit_memory"], bad["kernel/panic"] = "0", "0"
	kops := map[string]string{"/etc/sysconfig/kubelet": "DAEMON_ARGS=\"--v=2 --protect-kernel-defaults=true\"\n"}
	checkstest.RunOne(t, "kubelet.protect-kernel-defaults", checks.Run, []checkstest.Case{
		{What: "kops, and two differ", Node: checkstest.Node(kops, bad), Want: `
warn
want: the six values that kubelet demands
got: vm.overcommit_memory=0 kernel.panic=0
evidence: /etc/sysconfig/kubelet: --protect-kernel-defaults=true
evidence: /proc/sys/vm/overcommit_memory: 0
evidence: /proc/sys/kernel/panic: 0
remedy: run ` + "`sysctl -w vm.overcommit_memory=1 kernel.panic=10`" + `, and add them to the policy`},
		{What: "the cause is the policy's own", Node: checkstest.Node(kops, bad), Policy: "sysctl \"kernel.panic\" { value = 10 }\n" +
			"sysctl \"vm.overcommit_memory\" { value = 1 }", Want: `
warn
want: the six values that kubelet demands
got: vm.overcommit_memory=0 kernel.panic=0
because: sysctl.vm.overcommit_memory
evidence: /etc/sysconfig/kubelet: --protect-kernel-defaults=true
evidence: /proc/sys/vm/overcommit_memory: 0
evidence: /proc/sys/kernel/panic: 0
remedy: run ` + "`sysctl -w vm.overcommit_memory=1 kernel.panic=10`" + `, and add them to the policy`},
		{What: "the policy has only one of them", Node: checkstest.Node(kops, bad), Policy: "sysctl \"kernel.panic\" { value = 10 }", Want: `
warn
want: the six values that kubelet demands
got: vm.overcommit_memory=0 kernel.panic=0
evidence: /etc/sysconfig/kubelet: --protect-kernel-defaults=true
evidence: /proc/sys/vm/overcommit_memory: 0
evidence: /proc/sys/kernel/panic: 0
remedy: run ` + "`sysctl -w vm.overcommit_memory=1 kernel.panic=10`" + `, and add them to the policy`},
		{What: "kops, all six right", Node: checkstest.Node(kops, good), Want: `pass
want: the six values that kubelet demands
got: the six values that kubelet demands
evidence: /etc/sysconfig/kubelet: --protect-kernel-defaults=true`},
		{What: "off", Node: checkstest.Node(map[string]string{kubeadmConfig: "kind: KubeletConfiguration\n"}, bad), Want: `
skipped
skipped: kubelet's protectKernelDefaults is off: it writes the six parameters itself`},
		{What: "no configuration found", Node: checkstest.Node(nil, bad), Want: `warn
want: the six values that kubelet demands
got: vm.overcommit_memory=0 kernel.panic=0
evidence: /proc/sys/vm/overcommit_memory: 0
evidence: /proc/sys/kernel/panic: 0
remedy: run ` + "`sysctl -w vm.overcommit_memory=1 kernel.panic=10`" + `, and add them to the policy`},
		{What: "a configuration that is not YAML", Node: checkstest.Node(map[string]string{kubeadmConfig: "a: [\n"}, good),
			Want: "unknown\nerror: reading /var/lib/kubelet/config.yaml: yaml: line 1: did not find expected node content"},
	})
}

// TestEarly: apply runs early at boot, before kubelet's files may exist: it checks parameters, not kubelet, except
// for what keeps systemd from running the gate at all.
func TestEarly(t *testing.T) {
	p := checkstest.Load(t, "use \"kubernetes\" {}\nprobe \"bridge\" {}\n")
	all := catalog.For(p, checks.Boot)
	early := checks.Early(all)
	assert.True(t, len(early) != len(all) && len(early) >= 10, "%d of %d requirements", len(early), len(all))
	if !slices.ContainsFunc(early, func(c checks.Check) bool { return c.Name() == "bridge.netfilter" }) {
		t.Error("a check that does not depend on kubelet is left for later")
	}
	for _, c := range early {
		if strings.HasPrefix(c.Name(), "kubelet.") && c.Name() != "kubelet.unit" || strings.HasPrefix(c.Name(), "probe.") || c.Name() == "swap" {
			t.Errorf("%s runs before kubelet can start", c.Name())
		}
	}
}
