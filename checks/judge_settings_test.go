package checks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// settingCase is a node, or a file tree, and what one judgement says of it.
type settingCase struct {
	name   string
	node   *hosttest.Machine
	tree   map[string]string // in place of node, at stage image; "-> TARGET" is a link
	policy string            // beside the check block
	want   string
}

// judgeSettings runs one judgement over nodes and compares all that it says.
func judgeSettings(t *testing.T, judgement string, stage checks.Stage, cases []settingCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var h *host.Host
			if c.tree != nil {
				h = treeOf(t, c.tree)
			} else {
				h = c.node.Host()
			}
			p := load(t, "check \""+judgement+"\" {}\n"+c.policy)
			report := checks.Inspect(t.Context(), h, stage, checks.For(p, stage))
			for _, r := range report.Results {
				if r.Name == judgement {
					got := said(r)
					if c.tree != nil {
						got = strings.ReplaceAll(got, h.Root, "ROOT")
					}
					equal(t, "judgement", c.want, got)
					return
				}
			}
			t.Errorf("%s is not made at stage %s", judgement, stage)
		})
	}
}

// said is everything that a person is told: of the evidence the first two.
func said(r checks.Result) string {
	var b strings.Builder
	b.WriteString(r.Verdict.String())
	switch {
	case r.Err != nil:
		fmt.Fprintf(&b, "\nerror: %v", r.Err)
	case r.State.Skip != "":
		fmt.Fprintf(&b, ": %s", r.State.Skip)
	default:
		fmt.Fprintf(&b, "\nwant: %s\ngot: %s", r.State.Want, r.State.Got)
	}
	if r.State.Cause != "" {
		fmt.Fprintf(&b, "\nbecause: %s", r.State.Cause)
	}
	for i, e := range r.State.Evidence {
		if i < 2 && r.Err == nil && r.State.Skip == "" {
			fmt.Fprintf(&b, "\nevidence: %s: %s", e.Source, e.Text)
		}
	}
	if r.Err == nil && !r.State.Pass && r.State.Skip == "" {
		fmt.Fprintf(&b, "\nremedy: %s", r.State.Remedy)
	}
	return b.String()
}

// treeOf is a file tree on disk, opened as an image.
func treeOf(t *testing.T, files map[string]string) *host.Host {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(to, at)
		} else {
			err = os.WriteFile(at, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// node is a machine of files, and of parameters by their path below /proc/sys.
func node(files map[string]string, sysctls map[string]string) *hosttest.Machine {
	m := &hosttest.Machine{Files: map[string]string{}}
	for name, content := range files {
		m.Files[name] = content
	}
	for key, value := range sysctls {
		m.Sysctl(key, value)
	}
	return m
}

// TestJudgementsSayEverything: a judgement without its texts explains nothing.
func TestJudgementsSayEverything(t *testing.T) {
	seen := map[string]bool{}
	for _, j := range checks.Problems() {
		for what, text := range map[string]string{"Detects": j.Detects, "Symptom": j.Symptom, "How": j.How, "Remedy": j.Remedy, "Ref": j.Ref, "Severity": string(j.Severity)} {
			if strings.TrimSpace(text) == "" {
				t.Errorf("%s has no %s", j.Name, what)
			}
		}
		if seen[j.Name] || j.Name != strings.ToLower(j.Name) || len(j.Stages) == 0 || j.Inspect == nil {
			t.Errorf("%q: twice, not lower case, or without stages", j.Name)
		}
		seen[j.Name] = true
	}
}

// TestJudgementsReplay: a snapshot of a node says of it what the node itself said.
func TestJudgementsReplay(t *testing.T) {
	m := node(map[string]string{
		"/proc/swaps": "Filename\n/dev/sda2 partition 1 0 -2\n", "/proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
		"/etc/sysctl.d/10-a.conf": "net.ipv4.ip_forward = 0\n", "/etc/sysctl.conf": "", "/var/lib/kubelet/config.yaml": "{}\n",
		"/usr/lib/systemd/network/99-default.link": defaultLink, "/usr/lib/systemd/libsystemd-shared-252.so": "",
		"/proc/net/stat/arp_cache": neighbourHeader + "0010 0 0 0 0 0 0 0 0 0 0 0 0\n",
	}, map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv4/conf/all/rp_filter": "1", "net/ipv4/conf/flannel.1/rp_filter": "0", "net/ipv4/neigh/default/gc_thresh3": "1024",
		"net/ipv4/conf/all/route_localnet": "1", "net/ipv4/ip_local_port_range": "1024 65535", "net/ipv4/ip_local_reserved_ports": "",
		"fs/inotify/max_user_watches": "1", "fs/inotify/max_user_instances": "1",
	})
	m.Links = map[string]*hosttest.Link{"flannel.1": {Kind: "vxlan"}}
	m.Rules = map[string]string{"iptables-nft-save": "*filter\nCOMMIT\n"}
	m.Units = map[string][2]string{"firewalld.service": {"active", "enabled"}, "systemd-networkd.service": {"active", "enabled"}}
	text := forwardPolicy
	for _, name := range []string{
		"sysctl.who-wins", "link.mac-address-policy", "networkd.foreign-routes", "networkmanager.cni-links", "nm-cloud-setup", "firewalld", "ip-forward.writers",
		"rp-filter.effective", "kubelet.protect-kernel-defaults", "swap", "cgroup.version", "nodeport.overlap", "inotify.limits", "ipvs.settings",
		"neighbour.table", "route-localnet.martian",
	} {
		text += "check \"" + name + "\" {}\n"
	}
	list := checks.For(load(t, text), checks.Run)
	recorded, snapshot := host.Record(m.Host())
	live := print(checks.Inspect(t.Context(), recorded, checks.Run, list))
	equal(t, "live", `
pass sysctl.net.ipv4.ip_forward
warn sysctl.who-wins: want the policy's values win, got net.ipv4.ip_forward=0 at boot and at sysctl --system
warn link.mac-address-policy: want no persistent MAC address on CNI links, got persistent for flannel.1 vxlan.calico veth* cali*
warn networkd.foreign-routes: want ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no, got ManageForeignRoutes=yes ManageForeignRoutingPolicyRules=yes
skip networkmanager.cni-links: NetworkManager is off
pass nm-cloud-setup
warn firewalld: want off, got firewalld.service is active, enabled
warn ip-forward.writers: want 1, and nothing sets it to 0, got 0 by /etc/sysctl.d/10-a.conf:1
warn rp-filter.effective: want 0 on lxc* and cilium_*, not 1 on tunnels, CNI bridges and ENIs, got flannel.1=1
skip kubelet.protect-kernel-defaults: kubelet's protectKernelDefaults is off: it writes the six parameters itself
fail swap: want no swap, or failSwapOn false, got swap on /dev/sda2
pass cgroup.version
warn nodeport.overlap: want 30000-32767 not used for outgoing connections, got local ports 1024-65535, port 30000 not reserved
warn inotify.limits: want max_user_watches>=524288 max_user_instances>=512, got max_user_watches=1 max_user_instances=1
skip ipvs.settings: ip_vs is not in the kernel
pass neighbour.table
warn route-localnet.martian: want martian packets dropped, got route_localnet=1 without the KUBE-FIREWALL rule
fail`, live)
	equal(t, "replay", live, print(checks.Inspect(t.Context(), host.Replay(snapshot), checks.Run, list)))
	if m.Log != nil {
		t.Errorf("judgements changed the node: %q", m.Log)
	}
}
