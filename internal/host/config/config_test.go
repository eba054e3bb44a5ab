package config_test

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/config"
	"nodegate/internal/require"
)

// tree is a file tree in memory: path -> content; "-> TARGET" is a symbolic link.
type tree map[string]string

func (t tree) ReadFile(name string) ([]byte, error) {
	if c, ok := t[name]; ok && !strings.HasPrefix(c, "-> ") {
		return []byte(c), nil
	} else if ok {
		to := strings.TrimPrefix(c, "-> ")
		if !path.IsAbs(to) {
			to = path.Join(path.Dir(name), to)
		}
		return t.ReadFile(to)
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
}

func (t tree) ReadLink(name string) (string, error) {
	if to, ok := strings.CutPrefix(t[name], "-> "); ok {
		return to, nil
	}
	return "", &fs.PathError{Op: "readlink", Path: name, Err: syscall.EINVAL}
}

func (t tree) ReadDir(dir string) ([]string, error) {
	var names []string
	for name := range t {
		if below, is := strings.CutPrefix(name, dir+"/"); is {
			first, _, _ := strings.Cut(below, "/")
			names = append(names, first)
		}
	}
	if names == nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOENT}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	assert.Diff(t, got, want, "%s", what)
}

func TestCollect(t *testing.T) {
	files := tree{
		"/etc/sysctl.d/10-a.conf":           "etc",
		"/run/sysctl.d/10-a.conf":           "masked by /etc",
		"/usr/lib/sysctl.d/05-first.conf":   "vendor",
		"/etc/sysctl.d/20-null.conf":        "-> /dev/null",
		"/usr/lib/sysctl.d/20-null.conf":    "masked by a link",
		"/etc/sysctl.d/30-rel.conf":         "-> ../../dev/null",
		"/usr/lib/sysctl.d/30-rel.conf":     "masked by a relative link",
		"/etc/sysctl.d/40-nowhere.conf":     "-> /gone",
		"/usr/lib/sysctl.d/40-nowhere.conf": "not masked",
		"/etc/sysctl.d/README":              "not a .conf",
		"/etc/sysctl.d/99-sysctl.conf":      "-> ../sysctl.conf",
		"/etc/sysctl.conf":                  "linked",
	}
	found, err := config.Collect(files, config.Dirs("sysctl.d"), ".conf")
	require.NoError(t, err)
	var got []string
	for _, f := range found {
		got = append(got, f.Path+": "+string(f.Text))
	}
	equal(t, "files", []string{
		"/usr/lib/sysctl.d/05-first.conf: vendor",
		"/etc/sysctl.d/10-a.conf: etc",
		"/usr/lib/sysctl.d/40-nowhere.conf: not masked",
		"/etc/sysctl.d/99-sysctl.conf: linked",
	}, got)
}

func TestParseSysctl(t *testing.T) {
	got, err := config.ParseSysctl("a.conf", []byte("# c\n; c\n\n net.ipv4.ip_forward = 1 # not a comment\n"+
		"-net/ipv4/conf/eth0.100/rp_filter=0\r\n-net.ipv4.conf.eth0\nnonsense\n= 1\nnet.ipv4.conf.eth0/100.rp_filter ="))
	equal(t, "settings", []config.Setting{
		{Key: "net/ipv4/ip_forward", Value: "1 # not a comment", File: "a.conf", Line: 4},
		{Key: "net/ipv4/conf/eth0.100/rp_filter", Value: "0", Lenient: true, File: "a.conf", Line: 5},
		{Key: "net/ipv4/conf/eth0", Exclude: true, File: "a.conf", Line: 6},
		{Key: "net/ipv4/conf/eth0.100/rp_filter", File: "a.conf", Line: 9},
	}, got)
	equal(t, "error", "a.conf:7: not an assignment; write key = value\na.conf:8: the assignment lacks a key", fmt.Sprint(err))
}

func TestParseModprobe(t *testing.T) {
	got := config.ParseModprobe("a.conf", []byte("# comment \\\ninstall swallowed /bin/true\nblacklist br-netfilter\ninstall \\\n"+
		"  ip_vs /bin/false # CIS\n\toptions nf_conntrack hashsize=1\ninstall x /sbin/modprobe --ignore-install x\n # indented\n"+
		"install half\n"))
	equal(t, "lines", []config.Modprobe{
		{Command: "blacklist", Module: "br_netfilter", File: "a.conf", Line: 3},
		{Command: "install", Module: "ip_vs", Rest: "/bin/false # CIS", File: "a.conf", Line: 4},
		{Command: "options", Module: "nf_conntrack", Rest: "hashsize=1", File: "a.conf", Line: 6},
		{Command: "install", Module: "x", Rest: "/sbin/modprobe --ignore-install x", File: "a.conf", Line: 7},
	}, got)
	m, ok := config.Install(got, "ip-vs")
	equal(t, "disabled", true, ok && m.Disables())
	m, ok = config.Install(got, "x")
	equal(t, "not disabled", true, ok && !m.Disables())
	_, ok = config.Blacklisted(got, "br_netfilter")
	equal(t, "blacklisted", true, ok)
}

func TestParseINI(t *testing.T) {
	got, err := config.ParseINI("a.link", []byte("early=1\n[Match]\nOriginalName = a* \\\n# between\n  b*\n[Link\nMACAddressPolicy=\n"+
		"[Link]\nMACAddressPolicy=none\nword\nX=a\\\\\n"))
	equal(t, "entries", []config.Entry{
		{Section: "Match", Key: "OriginalName", Value: "a*    b*", File: "a.link", Line: 3},
		{Section: "Link", Key: "MACAddressPolicy", File: "a.link", Line: 7},
		{Section: "Link", Key: "MACAddressPolicy", Value: "none", File: "a.link", Line: 9},
		{Section: "Link", Key: "X", Value: `a\\`, File: "a.link", Line: 11},
	}, got)
	equal(t, "error", "a.link:1: not an assignment in a section\na.link:6: the section header does not end in ]\n"+
		"a.link:10: not an assignment in a section", fmt.Sprint(err))
	last, ok := config.Last(got, "Link", "MACAddressPolicy")
	equal(t, "last", "a.link:9 none true", fmt.Sprint(last.At(), " ", last.Value, " ", ok))
	_, ok = config.Last(got[:2], "Link", "MACAddressPolicy")
	equal(t, "reset", false, ok)
}

func TestLinkFor(t *testing.T) {
	files := tree{
		"/usr/lib/systemd/network/99-default.link": "[Match]\nOriginalName=*\n[Link]\nMACAddressPolicy=persistent\n",
		"/usr/lib/systemd/network/73-usb.link":     "[Match]\nPath=*-usb-*\n[Link]\nNamePolicy=mac\n",
		"/etc/systemd/network/50-flannel.link": "[Match]\nOriginalName=flannel* vxlan.calico\n[Link]\n" +
			"MACAddressPolicy=none\n",
		"/etc/systemd/network/60-veth.link":                    "[Match]\nDriver=veth\nHost=node1\n[Link]\nMACAddressPolicy=none\n",
		"/etc/systemd/network/99-default.link.d/10-extra.conf": "[Link]\nMTUBytes=1400\n",
	}
	all, err := config.LinkFiles(files)
	require.NoError(t, err)
	var got []string
	for _, d := range []config.Device{{Name: "flannel.1", Kind: "vxlan"}, {Name: "veth0", Kind: "veth"}, {Name: "cni0", Kind: "bridge"}} {
		for _, c := range config.LinkFor(all, d) {
			policy, _ := config.Last(c.Entries, "Link", "MACAddressPolicy")
			mtu, _ := config.Last(c.Entries, "Link", "MTUBytes")
			got = append(got, fmt.Sprint(d.Name, " ", c.File, " ", policy.Value, " ", mtu.Value, " ", len(c.If)))
		}
	}
	equal(t, "files", []string{
		"flannel.1 /etc/systemd/network/50-flannel.link none  0",
		"veth0 /etc/systemd/network/60-veth.link none  1",
		"veth0 /usr/lib/systemd/network/99-default.link persistent 1400 0",
		"cni0 /usr/lib/systemd/network/99-default.link persistent 1400 0",
	}, got)
}

func TestParseOSRelease(t *testing.T) {
	got := config.ParseOSRelease([]byte("# c\nID=rocky\nID_LIKE=\"rhel centos fedora\"\nNAME='Rocky \"L\"'\n" +
		"X=\"a\\\"b\"\nbad\n"))
	equal(t, "variables", config.OSRelease{"ID": "rocky", "ID_LIKE": "rhel centos fedora", "NAME": `Rocky "L"`, "X": `a"b`}, got)
	equal(t, "like", []bool{true, true, false}, []bool{got.Like("rocky"), got.Like("debian", "fedora"), got.Like("debian")})
}

func TestWinnerByTwoNames(t *testing.T) {
	files := tree{
		"/etc/sysctl.d/10-a.conf": "net.ipv4.ip_forward = 1\n",
		"/etc/sysctl.d/20-b.conf": "net.ipv4.conf.all.forwarding = 0\n",
	}
	s, err := config.SystemdSysctls(files)
	require.NoError(t, err)
	w, _ := s.Winner("net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding")
	equal(t, "last", "/etc/sysctl.d/20-b.conf:1", w.At())
	_, ok := s.Winner("net/ipv4/tcp_sack")
	equal(t, "nobody", false, ok)
}
