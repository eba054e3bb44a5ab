package checkstest

import (
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// Scratch gives the test a network namespace of its own, on a thread that ends with the test, and the real host as seen from there.
func Scratch(t *testing.T) *host.Host {
	t.Helper()
	hosttest.NeedRoot(t)
	hosttest.NeedBridgeNetfilter(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("making a network namespace: %v", err)
	}
	h, err := host.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// AddLink adds a link to the namespace of the test.
func AddLink(t *testing.T, l netlink.Link) {
	t.Helper()
	require.NoError(t, netlink.LinkAdd(l), "adding %s", l.Attrs().Name)
}

// ScratchSys is Scratch with the namespace's own /sys, where bridges show.
func ScratchSys(t *testing.T) *host.Host {
	t.Helper()
	h := Scratch(t)
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

// SetSysctl writes a parameter.
func SetSysctl(t *testing.T, h *host.Host, key, value string) {
	t.Helper()
	if err := h.WriteSysctl(key, value); err != nil {
		t.Fatal(err)
	}
}

// SetMTU sets the MTU of a link.
func SetMTU(t *testing.T, h *host.Host, link string, mtu int) {
	t.Helper()
	if err := h.Links.Set(t.Context(), link, "mtu", map[string]string{"": strconv.Itoa(mtu)}); err != nil {
		t.Fatal(err)
	}
}

// Is compares the verdict and what was got.
func Is(t *testing.T, h *host.Host, what, name, want string) {
	t.Helper()
	r := On(t.Context(), t, h, checks.Run, name, "")
	says := r.State.Got
	switch {
	case r.Err != nil:
		says = r.Err.Error()
	case r.Verdict == verdict.Skipped:
		says = r.State.Skip
	}
	got := r.Verdict.String() + ": " + says
	if got != want {
		t.Errorf("%s: %s\nwant %s\nevidence %q", what, got, want, r.State.Evidence)
	}
}

// PodNetwork makes a NIC with a default route, a VXLAN tunnel on it, and a bridge with one Pod.
func PodNetwork(t *testing.T) {
	t.Helper()
	hosttest.NeedProgram(t, "ip")
	nic := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "nic0", MTU: 1500}, PeerName: "nic1"}
	AddLink(t, nic)
	if err := netlink.LinkSetUp(nic); err != nil {
		t.Fatal(err)
	}
	anywhere := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: nic.Attrs().Index, Dst: anywhere, Scope: netlink.SCOPE_LINK}); err != nil {
		t.Fatalf("adding a default route: %v", err)
	}
	// The netlink library cannot ask for no checksum, which ip can.
	arguments := strings.Fields("link add flannel.1 mtu 1450 type vxlan id 1 dstport 8472 dev nic0 noudpcsum")
	if out, err := exec.Command("ip", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("ip link add: %v: %s", err, out)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0", MTU: 1450}}
	AddLink(t, bridge)
	AddLink(t, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0", MTU: 1450, MasterIndex: bridge.Attrs().Index}, PeerName: "veth1"})
}
