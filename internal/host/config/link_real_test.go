package config_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// linkSets are sets of .link files from which udev selects one.
var linkSets = []struct {
	what  string
	files tree
}{
	{"only the distribution's file", tree{"/usr/lib/systemd/network/99-default.link": defaultLinkFile}},
	{"names", tree{
		"/etc/systemd/network/10-a.link": "[Match]\nOriginalName=v0 br*\n[Link]\nMTUBytes=1400\n",
		"/etc/systemd/network/20-b.link": "[Match]\nOriginalName=v[0-9]\n", "/usr/lib/systemd/network/99-default.link": defaultLinkFile,
	}},
	{"a first ! inverts the line", tree{
		"/etc/systemd/network/10-a.link":           "[Match]\nOriginalName=!v0 br*\n[Link]\nMTUBytes=1400\n",
		"/usr/lib/systemd/network/99-default.link": defaultLinkFile,
	}},
	{"two lines, one of them inverted", tree{
		"/etc/systemd/network/10-a.link":           "[Match]\nOriginalName=!v0\nOriginalName=v* vx0\n",
		"/usr/lib/systemd/network/99-default.link": defaultLinkFile,
	}},
	{"an empty value resets", tree{"/etc/systemd/network/10-a.link": "[Match]\nOriginalName=v0\nOriginalName=\nKind=vxlan\n"}},
	{"types", tree{
		"/etc/systemd/network/10-a.link": "[Match]\nType=vxlan\n", "/etc/systemd/network/11-a.link": "[Match]\nType=ether\n",
		"/etc/systemd/network/12-a.link": "[Match]\nType=bridge\n",
	}},
	{"drivers and kinds", tree{
		"/etc/systemd/network/10-a.link":           "[Match]\nDriver=veth\nOriginalName=*0\n",
		"/etc/systemd/network/11-a.link":           "[Match]\nKind=bridge vxlan\nDriver=!bridge\n",
		"/usr/lib/systemd/network/99-default.link": defaultLinkFile,
	}},
	{"paths and permanent addresses, which virtual links lack", tree{
		"/etc/systemd/network/10-a.link": "[Match]\nPath=*\n", "/etc/systemd/network/11-a.link": "[Match]\n" +
			"PermanentMACAddress=02:00:00:00:00:01\n",
		"/etc/systemd/network/12-a.link":           "[Match]\nPath=!pci-*\nOriginalName=v0\n",
		"/usr/lib/systemd/network/99-default.link": defaultLinkFile,
	}},
	{"no condition", tree{"/etc/systemd/network/10-a.link": "[Link]\nMTUBytes=1400\n",
		"/etc/systemd/network/11-a.link": "[Match]\n[Link]\nMTUBytes=1400\n", "/usr/lib/systemd/network/99-default.link": defaultLinkFile}},
	{"masked, and in a directory of higher precedence", tree{
		"/etc/systemd/network/10-a.link": "-> /dev/null", "/usr/lib/systemd/network/10-a.link": "[Match]\nOriginalName=*\n",
		"/run/systemd/network/20-b.link": "[Match]\nOriginalName=v0\n", "/usr/lib/systemd/network/20-b.link": "[Match]\nOriginalName=*\n",
		"/usr/lib/systemd/network/99-default.link": defaultLinkFile,
	}},
	{"drop-ins", tree{
		"/usr/lib/systemd/network/10-a.link": "[Match]\nOriginalName=vx0\n", "/etc/systemd/network/10-a.link.d/x.conf": "[Match]\n" +
			"OriginalName=br0\n",
		"/usr/lib/systemd/network/99-default.link": defaultLinkFile,
	}},
	{"conditions on the machine", tree{
		"/etc/systemd/network/10-a.link":           "[Match]\nArchitecture=sparc\nOriginalName=v0\n",
		"/etc/systemd/network/11-a.link":           "[Match]\nKernelVersion=>=2\nOriginalName=v1\n",
		"/usr/lib/systemd/network/99-default.link": defaultLinkFile,
	}},
	{"brackets, quotes and joined lines", tree{
		"/etc/systemd/network/10-a.link": "[Match]\nOriginalName=v[!0] \\\n br0\n",
		"/etc/systemd/network/11-a.link": "[Match]\nOriginalName=\"v0\"\n",
		"/etc/systemd/network/12-a.link": "[Match]\nKind=\"vx*\" nothing\n", "/usr/lib/systemd/network/99-default.link": defaultLinkFile,
	}},
}

const defaultLinkFile = "[Match]\nOriginalName=*\n[Link]\nNamePolicy=keep kernel\nMACAddressPolicy=none\n"

// TestLinkForAgainstUdev checks which .link file the real udev selects for each of several real
// links. If LinkFor returns several files, because the choice depends on the machine, udev's must
// be one of them.
func TestLinkForAgainstUdev(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "udevadm")
	hosttest.NeedProgram(t, "ip")
	devices := []config.Device{{Name: "v0", Kind: "veth"}, {Name: "v1", Kind: "veth"}, {Name: "vx0", Kind: "vxlan"}, {Name: "br0",
		Kind: "bridge"}}
	winners := map[string]int{}
	for _, set := range linkSets {
		root := set.files.onDisk(t)
		said := askUdev(t, root)
		h, err := host.Open(root)
		require.NoError(t, err)
		files, err := config.LinkFiles(h.Files)
		require.NoError(t, err)
		for _, d := range devices {
			ours := []string{}
			candidates := config.LinkFor(files, d)
			for _, c := range candidates {
				ours = append(ours, c.File)
			}
			certain := len(candidates) > 0 && len(candidates[len(candidates)-1].If) == 0
			if !certain {
				ours = append(ours, "")
			}
			if len(candidates) > 1 && !slices.Contains(ours, said[d.Name]) || len(candidates) <= 1 && certain &&
				said[d.Name] != ours[0] || len(candidates) == 0 && said[d.Name] != "" {
				t.Errorf("%s: %s gets %q, not %q", set.what, d.Name, said[d.Name], ours)
			}
			winners[said[d.Name]]++
		}
	}
	if len(winners) < 6 {
		t.Errorf("udev selected only %v", winners)
	}
}

// askUdev returns the .link file that udev selects for each link, "" for none. Links and mounts are
// in separate namespaces.
func askUdev(t *testing.T, root string) map[string]string {
	t.Helper()
	const script = `set -e
mount --make-rprivate /
mount -t sysfs sysfs /sys
ip link add v0 type veth peer name v1
ip link add vx0 type vxlan id 3 dstport 8472
ip link add br0 type bridge
for d in etc run usr/lib usr/local/lib; do
	mkdir -p "$0/$d/systemd/network" "/$d/systemd/network"
	mount --bind "$0/$d/systemd/network" "/$d/systemd/network"
done
for l in v0 v1 vx0 br0; do
	said=$(udevadm test-builtin net_setup_link /sys/class/net/$l 2>/dev/null) || [ $? = 1 ]
	echo "$l $(echo "$said" | sed -n 's/^ID_NET_LINK_FILE=//p')"
done`
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "sh", "-c", script, root)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("querying udev: %v: %s", err, out)
	}
	said := map[string]string{}
	for line := range strings.Lines(string(out)) {
		link, file, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		said[link] = file
	}
	return said
}
