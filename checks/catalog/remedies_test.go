package catalog_test

import (
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// faultyImage is a fault of an image, which the remedy of one check corrects.
type faultyImage struct {
	name, check string
	files       map[string]string
}

// nodeImage is an image whose checks pass once nodegate is installed in it.
func nodeImage() map[string]string {
	return map[string]string{
		"/etc/os-release": "ID=debian\n", "/etc/machine-id": "", "/etc/hostname": "localhost\n", "/etc/fstab": "UUID=1 / ext4 defaults 0 1\n",
		"/etc/passwd": "root:x:0:0::/root:/bin/sh\n", "/etc/group": "root:x:0:\n", "/etc/shadow": "root:*:1::::::\n", "/etc/gshadow": "root:*::\n",
		"/etc/login.defs":                "SYS_UID_MAX 999\nSYS_GID_MAX 999\n",
		"/lib/modules/6.1.0/modules.dep": "", "/lib/modules/6.1.0/modules.builtin": "kernel/br_netfilter.ko\nkernel/overlay.ko\nkernel/nf_conntrack.ko\n",
		"/usr/lib/systemd/system/multi-user.target": "[Unit]\n", "/usr/lib/systemd/system/sysinit.target": "[Unit]\n",
		"/usr/bin/kubelet": "#!/bin/sh\n",
		"/bin/sh":          "\x7fELF",
		"/usr/lib/systemd/system/kubelet.service":                     "[Service]\nExecStart=/usr/bin/kubelet\n[Install]\nWantedBy=multi-user.target\n",
		"/etc/systemd/system/multi-user.target.wants/kubelet.service": "-> /usr/lib/systemd/system/kubelet.service",
		"/usr/lib/systemd/system/ssh.service":                         "[Service]\nExecStartPre=/usr/sbin/sshd -t\nExecStart=/usr/sbin/sshd -D\n",
		"/etc/systemd/system/multi-user.target.wants/ssh.service":     "-> /usr/lib/systemd/system/ssh.service",
	}
}

func faultyImages() []faultyImage {
	const key = "-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----\n"
	const kubeconfig = "users:\n- user:\n    token: abcdef.0123456789abcdef\n"
	const dropIns, wants = "/etc/systemd/system/kubelet.service.d/", "/etc/systemd/system/multi-user.target.wants/"
	one := func(name, content string) map[string]string { return map[string]string{name: content} }
	list := []faultyImage{
		{"a name for RHEL's initiator", "image.identity", map[string]string{"/etc/iscsi/initiatorname.iscsi": "InitiatorName=iqn.1994-05.com.redhat:1\n",
			"/usr/lib/systemd/system/iscsi-init.service": "[Service]\n"}},
		{"everything at once, in paths with spaces", "image.identity", map[string]string{"/home/a b/.netrc": "machine a password b\n", "/etc/machine-id": "1\n",
			"/etc/hostname": "builder\n", "/etc/kubernetes/admin.conf": kubeconfig, "/var/log/syslog": "x\n"}},
		{"swap units", "image.swap", map[string]string{"/etc/systemd/system/swap.target.wants/a.swap": "-> ../a.swap",
			"/usr/lib/systemd/system/swap.target.wants/b.swap": "-> ../b.swap"}},
		{"two ExecStart=", "kubelet.unit", one(dropIns+"10-kubeadm.conf", "[Service]\nExecStart=/usr/bin/kubelet --v=2\n")},
		{"a program without permission", "kubelet.unit", one("/usr/bin/kubelet", "\x7fELF")},
		{"kubelet is not enabled", "kubelet.unit", one(wants+"kubelet.service", "")},
		{"an empty unit in /etc", "kubelet.unit", one("/etc/systemd/system/kubelet.service", "-> /dev/null")},
		{"a missing directory", "kubelet.unit", one(dropIns+"10-dir.conf", "[Service]\nWorkingDirectory=/opt/kube let\n")},
		{"a missing environment file", "kubelet.unit", one(dropIns+"10-env.conf", "[Service]\n# from the cluster\nEnvironmentFile=/etc/default/kubelet\n")},
		{"the apply unit is not enabled", "image.units", one(wants+"nodegate-apply.service", "")},
		{"kubelet's drop-in is gone", "image.units", one(dropIns+"10-nodegate.conf", "")},
		{"the binary is gone", "image.units", one("/usr/local/bin/nodegate", "")},
		{"firewalld is enabled", "firewalld", map[string]string{wants + "firewalld.service": "-> /usr/lib/systemd/system/firewalld.service",
			"/usr/lib/systemd/system/firewalld.service": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}},
		{"fapolicyd is enabled", "image.fapolicyd", map[string]string{wants + "fapolicyd.service": "-> /x", "/etc/fapolicyd/rules.d/90-deny.rules": "deny_audit perm=execute all : all\n"}},
	}
	for name, content := range map[string]string{
		"/etc/machine-id": "6e6f\n", "/etc/ssh/ssh_host_rsa_key": "K", "/etc/iscsi/initiatorname.iscsi": "InitiatorName=iqn.1993-08.org.debian:01:1\n",
		"/etc/nvme/hostnqn": "nqn\n", "/etc/nvme/hostid": "1\n", "/root/.ssh/authorized_keys": "ssh-rsa AAAA\n",
		"/etc/kubernetes/admin.conf": kubeconfig, "/etc/kubernetes/kubelet.conf": kubeconfig, "/etc/kubernetes/bootstrap-kubelet.conf": kubeconfig,
		"/etc/kubernetes/pki/ca.key": key, "/var/lib/rancher/k3s/agent/client-kubelet.key": key, "/etc/rancher/node/password": "x\n",
		"/etc/dropbear/dropbear_rsa_host_key": "K", "/etc/hostname": "builder\n",
		"/var/lib/kubelet/cpu_manager_state": "{}\n", "/var/lib/cloud/instances/i-1/sem/x": "1\n", "/var/lib/systemd/random-seed": "R",
		"/etc/rancher/k3s/config.yaml":              "server: x\ntoken: abc\n",
		"/etc/systemd/system/k3s-agent.service.env": "K3S_URL=x\nK3S_TOKEN=abc\n",
		"/etc/rancher/rke2/registries.yaml":         "configs:\n  r:\n    auth:\n      username: u\n      password: p\n",
		"/etc/udev/rules.d/70-persistent-net.rules": "ATTR{address}==\"52:54:00:12:34:56\", NAME=\"eth0\"\n",
		"/etc/sysconfig/network-scripts/ifcfg-eth0": "DEVICE=eth0\nHWADDR=52:54:00:12:34:56\n",
	} {
		list = append(list, faultyImage{name, "image.identity", one(name, content)})
	}
	list = append(list, faultyImage{"/etc/fstab", "image.swap",
		one("/etc/fstab", "UUID=1 / ext4 defaults 0 1\n\t/swapfile none swap sw 0 0\n/dev/sda2\tswap\tswap\tsw\n")})
	for _, options := range []string{"noexec", "defaults,noexec", "noexec,nodev", "ro", "rw,ro,nodev", "user", "nodev,users,nosuid"} {
		list = append(list, faultyImage{options, "image.mounts", one("/etc/fstab", "UUID=1 / ext4 ro,noexec 0 1\nUUID=2 /var/lib/kubelet/ ext4 "+options+" 0 2\n")})
	}
	return list
}

// TestRemediesOfImages runs the remedy of each faulty image with the real programs. Afterwards the check passes, and no other check of the
// stage has another verdict than in the healthy image.
func TestRemediesOfImages(t *testing.T) {
	for _, program := range []string{"systemctl", "useradd", "groupadd"} {
		hosttest.NeedProgram(t, program)
	}
	hosttest.NeedRoot(t) // useradd --root changes its root directory
	bin := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/nodegate", "nodegate/cmd/nodegate").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(t *testing.T, command string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		cmd.Env = []string{"PATH=" + bin + ":/usr/sbin:/usr/bin:/sbin:/bin"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	file, err := policy.Builtin("kubernetes")
	require.NoError(t, err)
	list := slices.DeleteFunc(catalog.For(checkstest.Load(t, string(file.Text)), checks.Image), func(c checks.Check) bool {
		return strings.HasPrefix(c.Name(), "packetfilter.") // they need the modules of a real kernel
	})
	inspect := func(t *testing.T, h *host.Host) map[string]checks.Result {
		t.Helper()
		all := map[string]checks.Result{}
		for _, r := range checks.Inspect(t.Context(), h, checks.Image, list).Results {
			all[r.Name] = r
			if r.Err != nil {
				t.Errorf("%s: %v", r.Name, r.Err)
			}
		}
		return all
	}
	base := checkstest.Tree(t, nodeImage())
	run(t, "nodegate install --root "+base.Root)
	healthy := inspect(t, base)
	for name, r := range healthy {
		if r.Differs() {
			t.Errorf("%s is not healthy: %s", name, checkstest.Text(r))
		}
	}
	for _, image := range faultyImages() {
		t.Run(image.check+"/"+strings.TrimPrefix(image.name, "/"), func(t *testing.T) {
			root := t.TempDir() + "/image"
			run(t, "cp -a "+base.Root+" "+root)
			h, err := host.Open(root)
			require.NoError(t, err)
			for name, content := range image.files {
				at := "'" + filepath.Join(h.Root, name) + "'"
				switch to, link := strings.CutPrefix(content, "-> "); {
				case link:
					run(t, "mkdir -p $(dirname "+at+"); ln -sf "+to+" "+at)
				case content == "":
					run(t, "rm -f "+at)
				default:
					run(t, "mkdir -p \"$(dirname "+at+")\"; rm -f "+at+"; cat >"+at+" <<'X'\n"+content+"X\n")
				}
			}
			faulty := inspect(t, h)[image.check]
			if !faulty.Differs() {
				t.Fatalf("the fault is not found: %s", checkstest.Text(faulty))
			}
			commands := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(faulty.State.Remedy, -1)
			if commands == nil {
				t.Fatalf("the remedy has no command: %s", faulty.State.Remedy)
			}
			run(t, commands[0][1])
			after := inspect(t, h)
			for _, name := range slices.Sorted(maps.Keys(healthy)) {
				if after[name].Verdict != healthy[name].Verdict && (name != image.check || after[name].Verdict != verdict.Pass) {
					t.Errorf("after `%s` %s was %s and is %s", commands[0][1], name, healthy[name].Verdict, checkstest.Text(after[name]))
				}
			}
		})
	}
}
