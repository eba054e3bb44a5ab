package config_test

import (
	"os/exec"
	"strings"
	"testing"

	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// udevSets are rules that set NM_UNMANAGED in the forms that are in use.
var udevSets = []string{
	// NetworkManager's own.
	"SUBSYSTEM!=\"net\", GOTO=\"end\"\nACTION!=\"add|change|move\", GOTO=\"end\"\n" +
		"ENV{INTERFACE}==\"vboxnet[0-9]*\", ENV{NM_UNMANAGED}=\"1\"\n" +
		"ENV{ID_NET_DRIVER}==\"veth\", ENV{INTERFACE}!=\"eth[0-9]*\", ENV{NM_UNMANAGED}=\"1\"\n" +
		"ENV{DEVTYPE}==\"gadget\", ENV{NM_UNMANAGED}=\"1\"\nLABEL=\"end\"\n",
	"SUBSYSTEM==\"net\", ACTION==\"add\", KERNEL==\"flannel*|br?\", ENV{NM_UNMANAGED}=\"1\"\n",
	"ACTION==\"add\", SUBSYSTEM==\"net\", DRIVERS==\"?*\", ENV{NM_UNMANAGED}=\"1\"\nENV{DEVTYPE}==\"vxlan\", \\\n" +
		"  ENV{NM_UNMANAGED}:=\"1\"\n",
	"ENV{NM_UNMANAGED}=\"1\"\nKERNEL==\"br0\", ENV{NM_UNMANAGED}=\"0\"\nACTION==\"remove\", ENV{NM_UNMANAGED}=\"0\"\n",
	"KERNEL!=\"v*\", GOTO=\"others\"\nENV{NM_UNMANAGED}=\"1\"\nLABEL=\"others\"\n",
	"# nothing\nKERNEL==\"v0\", TAG+=\"NM_UNMANAGED\"\n",
}

// TestUdevUnmanagedAgainstUdev compares with the decision of the real udev about newly created
// links.
func TestUdevUnmanagedAgainstUdev(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "udevadm")
	hosttest.NeedProgram(t, "ip")
	const script = `set -e
mount --make-rprivate /
mount -t sysfs sysfs /sys
ip link add v0 type veth peer name eth9
ip link add flannel.1 type vxlan id 3 dstport 8472
ip link add br0 type bridge
for d in /usr/lib/udev/rules.d /lib/udev/rules.d; do [ ! -d $d ] || mount -t tmpfs none $d; done
mkdir -p /etc/udev/rules.d
mount --bind "$0/etc/udev/rules.d" /etc/udev/rules.d
for l in v0 eth9 flannel.1 br0; do
	echo "$l $(udevadm test --action=add /sys/class/net/$l 2>/dev/null | sed -n 's/^NM_UNMANAGED=//p')"
done`
	devices := []config.Device{{Name: "v0", Kind: "veth"}, {Name: "eth9", Kind: "veth"}, {Name: "flannel.1", Kind: "vxlan"},
		{Name: "br0", Kind: "bridge"}}
	unmanaged := 0
	for _, rules := range udevSets {
		root := tree{
			"/etc/udev/rules.d/80-net-setup-link.rules": "SUBSYSTEM==\"net\", IMPORT{builtin}=\"net_setup_link\"\n",
			"/etc/udev/rules.d/85-set.rules":            rules,
		}.onDisk(t)
		out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "sh", "-c", script, root).Output()
		if err != nil {
			t.Fatalf("querying udev: %v: %s", err, out)
		}
		said := map[string]string{}
		for line := range strings.Lines(string(out)) {
			link, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			said[link] = value
		}
		h, err := host.Open(root)
		require.NoError(t, err)
		for _, d := range devices {
			_, is, doubt, err := config.UdevUnmanaged(h.Files, d)
			if err != nil || doubt != nil || is != (said[d.Name] == "1") {
				t.Errorf("%s with\n%sunmanaged: %t, %v, %v; udev reports %q", d.Name, rules, is, doubt, err, said[d.Name])
			}
			if is {
				unmanaged++
			}
		}
	}
	if unmanaged < 5 {
		t.Errorf("only %d links were unmanaged", unmanaged)
	}
}
