package setting_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

// TestRefused: the report names the security setting that refused a change, and the remedy fits it.
func TestRefused(t *testing.T) {
	const module, ipForward = `module "m" {}`, `sysctl "net.ipv4.ip_forward" { value = 1 }`
	enforcing := map[string]string{"/sys/fs/selinux/enforce": "1", "/proc/self/attr/current": "system_u:system_r:kubelet_t:s0\x00"}
	confined := map[string]string{"/proc/self/attr/current": "cri-containerd.apparmor.d (enforce)\n"}
	for name, c := range map[string]struct {
		policy, modprobe string
		files            map[string]string
		by, remedy       string // contained in the error and in the remedy
	}{
		"a signature": {module, "modprobe: ERROR: could not insert 'm': Key was rejected by service", nil,
			"only modules with a trusted signature", "mokutil --import"},
		"lockdown": {module, "modprobe: ERROR: could not insert 'm': Operation not permitted",
			map[string]string{"/sys/kernel/security/lockdown": "none [integrity] confidentiality\n"},
			"kernel lockdown (integrity) allows only signed modules", "mokutil --import"},
		"no lockdown": {module, "modprobe: ERROR: could not insert 'm': Operation not permitted",
			map[string]string{"/sys/kernel/security/lockdown": "[none] integrity confidentiality\n"}, "Operation not permitted", "run `modprobe m`"},
		"SELinux and a module": {module, "modprobe: ERROR: could not insert 'm': Permission denied", enforcing,
			"SELinux is enforcing and may have denied it to this process (system_u:system_r:kubelet_t:s0)", "journalctl -b -g 'avc:"},
		"SELinux and a sysctl": {ipForward, "", enforcing, "SELinux is enforcing", "journalctl -b -g 'avc:"},
		"permissive SELinux": {ipForward, "", map[string]string{"/sys/fs/selinux/enforce": "0", "/proc/self/attr/current": "a:b:c:s0"},
			"read-only here", "run nodegate as root"},
		"AppArmor and a sysctl": {ipForward, "", confined,
			"AppArmor's profile cri-containerd.apparmor.d confines this process", "appArmorProfile"},
		"nothing": {ipForward, "", nil, "read-only here", "run nodegate as root"},
	} {
		t.Run(name, func(t *testing.T) {
			hosttest.Need(t, os.Geteuid() == 0, "root: other users lack the permission anyway")
			m := &hosttest.Machine{
				Files:  map[string]string{"/lib/modules/6.1.0/modules.dep": "kernel/m.ko:\n"},
				Refuse: map[string]error{"/proc/sys/net/ipv4/ip_forward": syscall.EACCES},
			}
			if c.modprobe != "" {
				m.Refuse["modprobe m"] = errors.New(c.modprobe)
			}
			for file, text := range c.files {
				m.Files[file] = text
			}
			m.Sysctl("net/ipv4/ip_forward", "0")
			list := catalog.For(checkstest.Load(t, c.policy), checks.Boot)
			r := checks.Apply(t.Context(), m.Host(), checks.Boot, list, nil).Results[0]
			if r.Verdict != verdict.Fail || r.Err == nil || !strings.Contains(r.Err.Error(), c.by) || !strings.Contains(r.State.Remedy, c.remedy) {
				t.Errorf("%v, error %v, remedy %s", r.Verdict, r.Err, r.State.Remedy)
			}
		})
	}
}

// TestModulesDisabled: if the kernel loads no more modules, the remedy is a reboot, and apply does not try.
func TestModulesDisabled(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{"/lib/modules/6.1.0/modules.dep": "kernel/m.ko:\n"}}
	m.Sysctl("kernel/modules_disabled", "1")
	list := catalog.For(checkstest.Load(t, `module "m" {}`), checks.Boot)
	r := checks.Apply(t.Context(), m.Host(), checks.Boot, list, nil).Results[0]
	if r.Verdict != verdict.Fail || m.Log != nil || !strings.Contains(r.State.Remedy, "kernel.modules_disabled is 1") {
		t.Errorf("%v, %q, remedy %s", r.Verdict, m.Log, r.State.Remedy)
	}
}

// TestRefusedValue: the remedy for a value that the kernel refuses or stores as another one is about the value, never about privilege.
func TestRefusedValue(t *testing.T) {
	const key, written = "net/netfilter/nf_conntrack_buckets", "/proc/sys/net/netfilter/nf_conntrack_buckets"
	for _, c := range []struct {
		name      string
		machine   *hosttest.Machine
		modes     map[string]fs.FileMode
		err, want string // contained in the error and in the remedy
	}{
		{"refused", &hosttest.Machine{Refuse: map[string]error{written: syscall.EINVAL}}, nil,
			"the kernel does not accept 100000", "correct the value in the policy"},
		{"gone", &hosttest.Machine{Refuse: map[string]error{written: syscall.ENOENT}}, nil, "it has disappeared", "check the spelling"},
		{"rounded", &hosttest.Machine{Clamp: map[string]string{written: "100352"}}, nil,
			"wrote net.netfilter.nf_conntrack_buckets=100000; the kernel stores 100352 instead", "write 100352 in the policy"},
		{"mode 0444", &hosttest.Machine{Refuse: map[string]error{written: syscall.EACCES}}, map[string]fs.FileMode{written: 0o444},
			"it is read-only here", "remove it from the policy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.machine
			m.Files, m.Modes = map[string]string{"/sys/module/nf_conntrack/initstate": "live\n"}, c.modes
			m.Sysctl(key, "65536")
			list := catalog.For(checkstest.Load(t, `sysctl "net.netfilter.nf_conntrack_buckets" { value = 100000 }`), checks.Boot)
			var recorded []string
			record := func(_ checks.Result, made []checks.Change) {
				for _, change := range made {
					recorded = append(recorded, change.From+" -> "+change.Stored())
				}
			}
			for range 2 { // the second attempt changes nothing
				r := checks.Apply(t.Context(), m.Host(), checks.Boot, list, record).Results[1]
				if r.Err == nil || !strings.Contains(r.Err.Error(), c.err) || !strings.Contains(r.State.Remedy, c.want) ||
					strings.Contains(r.State.Remedy, "root") {
					t.Errorf("error %v, remedy %s", r.Err, r.State.Remedy)
				}
			}
			want := "65536 -> 100000, 65536 -> 65536, 65536 -> 100000, 65536 -> 65536" // before the write, and when it has failed
			if c.name == "rounded" {
				want = "65536 -> 100000, 65536 -> 100352, 100352 -> 100000, 100352 -> 100352"
			}
			assert.Equal(t, strings.Join(recorded, ", "), want, "recorded")
		})
	}
}
