package checks_test

import (
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// release is a kernel that says it is another one.
type release struct {
	host.Kernel
	version string
}

func (r release) Release() (string, error) { return r.version, nil }

// scratchSys is scratch with the namespace's own /sys, where bridges show.
func scratchSys(t *testing.T) *host.Host {
	t.Helper()
	h := scratch(t)
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatalf("making a mount namespace: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatalf("making mounts private: %v", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		t.Fatalf("mounting /sys: %v", err)
	}
	return h
}

func setSysctl(t *testing.T, h *host.Host, key, value string) {
	t.Helper()
	if err := h.WriteSysctl(key, value); err != nil {
		t.Fatal(err)
	}
}

func setMTU(t *testing.T, h *host.Host, link string, mtu int) {
	t.Helper()
	if err := h.Links.SetMTU(t.Context(), link, mtu); err != nil {
		t.Fatal(err)
	}
}

// judgedTo compares the verdict and what was got.
func judgedTo(t *testing.T, h *host.Host, what, name, want string) {
	t.Helper()
	r := judgeOn(t.Context(), t, h, checks.Run, name, "")
	says := r.State.Got
	switch {
	case r.Err != nil:
		says = r.Err.Error()
	case r.Verdict == checks.Skip:
		says = r.State.Skip
	}
	got := r.Verdict.String() + ": " + says
	if got != want {
		t.Errorf("%s: %s\nwant %s\nevidence %q", what, got, want, r.State.Evidence)
	}
}

// podNetwork is a NIC with a default route, a VXLAN tunnel on it, and a bridge
// with one Pod.
func podNetwork(t *testing.T) {
	t.Helper()
	nic := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "nic0", MTU: 1500}, PeerName: "nic1"}
	addLink(t, nic)
	if err := netlink.LinkSetUp(nic); err != nil {
		t.Fatal(err)
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: nic.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, Scope: netlink.SCOPE_LINK}); err != nil {
		t.Fatalf("adding a default route: %v", err)
	}
	// The netlink library cannot ask for no checksum, which ip can.
	if out, err := exec.Command("ip", "link", "add", "flannel.1", "mtu", "1450", "type", "vxlan", "id", "1", "dstport", "8472", "dev", "nic0", "noudpcsum").CombinedOutput(); err != nil {
		t.Fatalf("ip link add: %v: %s", err, out)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0", MTU: 1450}}
	addLink(t, bridge)
	addLink(t, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0", MTU: 1450, MasterIndex: bridge.Attrs().Index}, PeerName: "veth1"})
}

// TestBridgesOnTheKernel shows the bridge and MTU judgements on real links.
func TestBridgesOnTheKernel(t *testing.T) {
	h := scratchSys(t)
	judgedTo(t, h, "no links", "bridge.netfilter", "skip: no bridge has Pods on it: routed Pods need no br_netfilter")
	judgedTo(t, h, "no links", "mtu.chain", "skip: no VXLAN tunnel")
	podNetwork(t)

	const key = "net/bridge/bridge-nf-call-iptables"
	if _, err := h.ReadSysctl(key); err != nil {
		t.Skipf("this kernel has no br_netfilter: %v", err)
	}
	setSysctl(t, h, key, "1")
	judgedTo(t, h, "the parameter is 1", "bridge.netfilter", "pass: every bridge on")
	setSysctl(t, h, key, "0")
	judgedTo(t, h, "both are 0", "bridge.netfilter", "fail: off on cni0")
	if err := h.Files.Write("/sys/class/net/cni0/bridge/nf_call_iptables", []byte("1")); err != nil {
		t.Fatal(err)
	}
	judgedTo(t, h, "the bridge's own switch is 1", "bridge.netfilter", "pass: every bridge on")
	judgedTo(t, h, "this kernel", "bridge.netfilter-ipv6", "skip: this kernel has IPv6")

	judgedTo(t, h, "tunnel 1450", "mtu.chain", "pass: tunnel <= NIC - 50, Pods <= tunnel")
	setMTU(t, h, "cni0", 1500)
	setMTU(t, h, "veth0", 1500)
	judgedTo(t, h, "bridge 1500", "mtu.chain", "warn: cni0 1500 > 1450, veth0 1500 > 1450")
	setMTU(t, h, "cni0", 1400)
	setMTU(t, h, "veth0", 1400)
	setMTU(t, h, "nic0", 1480)
	judgedTo(t, h, "NIC 1480", "mtu.chain", "warn: flannel.1 1450 > 1430")
	judgedTo(t, h, "no such driver", "ena.allowance", "skip: no link has the driver ena")
}

// TestRulesOnTheKernel writes kube-proxy's rules into a namespace and judges
// what the machine's own iptables says of them.
func TestRulesOnTheKernel(t *testing.T) {
	h := scratchSys(t)
	restore, err := exec.LookPath("iptables-nft-restore")
	if err != nil {
		t.Skip("needs iptables-nft-restore")
	}
	load := func(save string) {
		t.Helper()
		cmd := exec.Command(restore)
		cmd.Stdin = strings.NewReader(strings.ReplaceAll(save, "-m nfacct --nfacct-name  ct_state_invalid_dropped_pkts ", ""))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", restore, err, out)
		}
	}
	judgedTo(t, h, "no rules", "kubeproxy.postrouting", "skip: no rules of kube-proxy here")
	podNetwork(t)

	load(proxySave)
	judgedTo(t, h, "healthy", "kubeproxy.postrouting", "pass: masqueraded once, from random ports")
	judgedTo(t, h, "healthy", "conntrack.invalid", "pass: INVALID dropped")
	judgedTo(t, h, "healthy", "conntrack.be-liberal-changed", "pass: be_liberal as kube-proxy found it")
	judgedTo(t, h, "healthy", "iptables.backends", "pass: one backend")
	judgedTo(t, h, "healthy", "iptables.bare-drop", "pass: no DROP without a match")
	judgedTo(t, h, "no Docker", "docker.forward-drop", "skip: Docker has no rules here")
	judgedTo(t, h, "this kernel", "vxlan.checksum", "pass: not all four conditions: the kernel has the fix")

	load(changed(t, dropInvalid, "", returnClear, "", masquerade, oldForm,
		":FORWARD ACCEPT [0:0]\n", ":FORWARD DROP [0:0]\n:DOCKER - [0:0]\n",
		"-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\"", "-A KUBE-FIREWALL -j DROP\n-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\""))
	judgedTo(t, h, "old form", "kubeproxy.postrouting", "warn: double-snat")
	judgedTo(t, h, "DROP left out", "conntrack.be-liberal-changed", "warn: be_liberal=0 now, not 0 when kube-proxy started")
	judgedTo(t, h, "DROP left out", "conntrack.invalid", "warn: be_liberal=0, no DROP of INVALID")
	judgedTo(t, h, "bare", "iptables.bare-drop", "fail: bare DROP in iptables-nft-save")
	judgedTo(t, h, "closed", "docker.forward-drop", "warn: FORWARD drops in iptables-nft-save")
	setSysctl(t, h, "net/netfilter/nf_conntrack_tcp_be_liberal", "1")
	judgedTo(t, h, "be_liberal", "conntrack.invalid", "pass: be_liberal=1")

	old := *h
	old.Kernel = release{h.Kernel, "5.4.38"}
	if id, _ := h.Fact(t.Context(), "os.id"); id == "debian" {
		r := judgeOn(t.Context(), t, &old, checks.Run, "vxlan.checksum", "")
		if r.Verdict != checks.Unknown || !strings.Contains(r.Err.Error(), "three of four conditions hold on flannel.1") {
			t.Errorf("an old kernel of Debian: %v, %v, %q", r.Verdict, r.Err, r.State.Evidence)
		}
	}
	if err := h.Links.SetFeatures(t.Context(), "flannel.1", map[string]bool{"tx-checksum-ip-generic": false}); err != nil {
		t.Fatal(err)
	}
	judgedTo(t, &old, "offload off", "vxlan.checksum", "pass: not all four conditions: no tunnel without outer checksum offloads the inner one")
	if err := h.Links.SetFeatures(t.Context(), "flannel.1", map[string]bool{"tx-checksum-ip-generic": true}); err != nil {
		t.Fatal(err)
	}
	old.Files = &secondRead{Files: h.Files, name: "/etc/os-release", then: "ID=flatcar\n", read: true}
	judgedTo(t, &old, "an old kernel of Flatcar", "vxlan.checksum", "fail: all four on flannel.1")
}

// TestCountersOnTheKernel: the real tables have the form that is parsed.
func TestCountersOnTheKernel(t *testing.T) {
	h, err := host.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"conntrack.losses", "udp.checksum-errors", "conntrack.headroom", "conntrack.full", "conntrack.hashsize", "iptables.version"} {
		r := judgeOn(t.Context(), t, h, checks.Run, name, "")
		if r.Verdict == checks.Unknown {
			t.Errorf("%s: %v", name, r.Err)
		}
		t.Logf("%s: %s %s%s", name, r.Verdict, r.State.Got, r.State.Skip)
	}
}

// TestMarkIsTriedInTheRealKernel: kube-proxy's IPv4 rules stand, none for IPv6.
func TestMarkIsTriedInTheRealKernel(t *testing.T) {
	hosttest.NeedRoot(t)
	for _, program := range []string{"iptables-nft", "iptables-legacy"} {
		hosttest.NeedProgram(t, program)
		done := make(chan struct{})
		go func() { // the namespace is this goroutine's
			defer close(done)
			h := scratch(t)
			if out, err := exec.CommandContext(t.Context(), program, "-t", "nat", "-N", "KUBE-SERVICES").CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", program, err, out)
				return
			}
			h.Kernel = release{h.Kernel, "6.6.58"} // by its release alone it would be unknown
			r := judgeOn(t.Context(), t, h, checks.Run, "iptables.mark-regression", "")
			want := "ip6" + strings.TrimPrefix(program, "ip") + " -t mangle -j MARK --set-xmark 0x4000/0x4000: taken"
			if r.Verdict != checks.Pass || len(r.State.Evidence) != 1 || r.State.Evidence[0].Text != want {
				t.Errorf("%s: %s", program, judgedText(r))
			}
		}()
		<-done
	}
}
