package nftables_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/nftables"
	"nodegate/internal/ruleset"
)

// saved are rules as kube-proxy, kubelet, flannel, the CNI plugins and Docker write them, and others of each form. A line that begins
// with 4 or 6 is of that family alone; %[1]s to %[4]s are addresses, %[5]s a mask.
const saved = `
*raw
-A PREROUTING -p udp -m udp --dport 53 -j ACCEPT
-A OUTPUT -o lo -j ACCEPT
COMMIT
*mangle
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:POSTROUTING DROP [0:0]
-A OUTPUT -m mark --mark 0x4000/0x4000 -j ACCEPT
-A PREROUTING ! -i eth0 -m mark ! --mark 0x1 -j MARK --set-xmark 0x2/0xffffffff
COMMIT
*filter
:INPUT DROP [0:0]
:KUBE-FIREWALL - [0:0]
:CNI-FORWARD - [0:0]
:DOCKER-USER - [0:0]
:a.b_c - [0:0]
:Zz - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -g Zz
-A INPUT
-A KUBE-FIREWALL ! -s %[3]s -d %[4]s -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-A KUBE-FIREWALL -m conntrack --ctstate INVALID,NEW,UNTRACKED,SNAT -j DROP
-A KUBE-FIREWALL -m state --state NEW -m tcp -p tcp --dport 22 -j ACCEPT
-A CNI-FORWARD -m comment --comment CNI_firewall-rules -j DOCKER-USER
-A CNI-FORWARD -m comment --comment "quotes ' \" and \\ end" -j RETURN
-A CNI-FORWARD -m comment --comment "" -j RETURN
-A CNI-FORWARD -m comment --comment "grüße ns/s:p" -m comment --comment "two" -j RETURN
-A FORWARD -s %[1]s -d %[2]s -i cni+ -o eth0 -j ACCEPT
-A FORWARD ! -o cni0 -j ACCEPT
-A FORWARD -s %[3]s ! -d %[4]s ! -p tcp -j ACCEPT
-A FORWARD -p sctp -m sctp --dport 80 -j ACCEPT
-A FORWARD -p sctp -m sctp ! --sport 1:2 --dport 80 -j ACCEPT
-A FORWARD -p udp -m udp ! --sport 5 -m comment --comment between -j ACCEPT
-A FORWARD -p tcp -m tcp --sport 1 ! --dport 2 -m comment --comment "two ports" -j ACCEPT
-A FORWARD -p tcp -m tcp --sport 65535 -j ACCEPT
-A FORWARD -p tcp -m tcp -j ACCEPT
-A FORWARD -p udp -m udp -j ACCEPT
-A FORWARD -p tcp -m multiport --dports 80,443,8000:9000 -j ACCEPT
-A FORWARD -p udp -m multiport ! --sports 53 -j ACCEPT
-A FORWARD -p tcp -m multiport --ports 1:2,3 -j ACCEPT
-A FORWARD -p tcp -j REJECT --reject-with tcp-reset
4-A FORWARD -s 10.0.0.0/255.0.255.0 -d 10.1.2.0/23 -j REJECT --reject-with icmp-port-unreachable
4-A FORWARD -j REJECT --reject-with icmp-admin-prohibited
6-A FORWARD -s fd00::/ffff:0:ffff:: -j REJECT --reject-with icmp6-port-unreachable
6-A FORWARD -s ::ffff:1.2.3.4 -d fe80::/10 -j REJECT --reject-with icmp6-adm-prohibited
6-A FORWARD -p ipv6-icmp -j REJECT --reject-with icmp6-no-route
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m addrtype --dst-type LOCAL -j KUBE-SERVICES
-A OUTPUT -m addrtype ! --dst-type LOCAL --src-type UNICAST,LOCAL --limit-iface-out -j KUBE-SERVICES
4-A PREROUTING -m addrtype ! --src-type BROADCAST --limit-iface-in -j KUBE-SERVICES
-A KUBE-SERVICES -d %[1]s -p tcp -m comment --comment "ns/s:p cluster IP" -m tcp --dport 443 -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-AAAAAAAAAAAAAAAA --mask %[5]s --rsource -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m recent ! --update --seconds 1 --hitcount 2 --rttl --name x --mask %[5]s --rdest -j RETURN
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m recent --remove --name x --mask %[5]s --rsource -j RETURN
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m statistic --mode random ! --probability 1.00000000000 -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m statistic --mode nth --every 3 --packet 1 -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SEP-AAAAAAAAAAAAAAAA -s %[2]s -j MARK --set-xmark 0x4000/0x4000
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m recent --set --name KUBE-SEP-AAAAAAAAAAAAAAAA --mask %[5]s --rsource -m tcp -j DNAT --to-destination %[6]s
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p udp -m udp -j DNAT --to-destination %[2]s --random --persistent
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m tcp -j DNAT --to-destination %[1]s-%[2]s
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m tcp -j DNAT --to-destination :80-90
-A KUBE-SERVICES -j MARK --set-xmark 0x0/0x4000
-A POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A POSTROUTING -j MASQUERADE --random-fully
-A POSTROUTING -p tcp -j MASQUERADE --to-ports 1024-65535 --random
-A POSTROUTING -p tcp -j MASQUERADE --to-ports 1024
-A POSTROUTING -s %[3]s -j SNAT --to-source %[2]s --random-fully
COMMIT
`

// savedForms returns saved in a family.
func savedForms(family string) string {
	a, other := []any{"10.96.0.1", "10.244.1.2", "127.0.0.0/8", "100.64.0.0/11", "255.255.255.255", "10.244.1.2:8080"}, "6"
	if family == ruleset.IPv6 {
		a, other = []any{"fd00:10:96::1", "fd00:10:244:1::2", "fd00:10:244::/56", "fd00:100::/43",
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "[fd00:10:244:1::2]:8080"}, "4"
	}
	var lines []string
	for line := range strings.Lines(fmt.Sprintf(saved, a...)) {
		if !strings.HasPrefix(line, other) {
			lines = append(lines, strings.TrimLeft(line, "46"))
		}
	}
	return strings.Join(lines, "")
}

// program returns the name of a program of iptables-nft for a family, and skips where it is not installed.
func program(t testing.TB, family, what string) string {
	t.Helper()
	name := map[string]string{ruleset.IPv4: "iptables-nft", ruleset.IPv6: "ip6tables-nft"}[family] + what
	hosttest.NeedProgram(t, name)
	return name
}

func run(stdin, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %v: %w\n%.2000s", name, args, err, errs.String())
	}
	return out.String(), nil
}

// overNetlink reads a family of the thread's namespace.
func overNetlink(t testing.TB, family string) (set *ruleset.Set, err error) {
	err = nftables.Save(t.Context(), family, func(r io.Reader) (err error) {
		set, err = ruleset.Parse("", r)
		return err
	})
	return set, err
}

// sameSave fails unless both readings of a family of the thread's namespace agree, line for line.
func sameSave(t *testing.T, family string) error {
	t.Helper()
	text, err := run("", program(t, family, "-save"))
	if err != nil {
		return err
	}
	want, none := ruleset.Parse("", strings.NewReader(text))
	got, err := overNetlink(t, family)
	if err != none {
		return fmt.Errorf("over netlink, %w; iptables-nft-save: %w", err, none)
	}
	if d := hosttest.DiffSets(want, got); d != "" {
		t.Errorf("%s: iptables-nft-save has -, netlink +:\n%.4000s", family, d)
	}
	return nil
}

// shuffled returns a save whose chains are made in another order than they are printed in.
func shuffled(save string) string {
	return regexp.MustCompile(`(?m)(^:.*\n)+`).ReplaceAllStringFunc(save, func(chains string) string {
		lines := strings.SplitAfter(chains, "\n")
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		return strings.Join(lines, "")
	})
}

// restored has the real iptables-nft-restore write a save into a namespace, and compares both readings of it.
func restored(t *testing.T, family, save string) {
	t.Helper()
	err := scratch(t).Do(t.Context(), func() error {
		if _, err := run(shuffled(save), program(t, family, "-restore")); err != nil {
			return err
		}
		return sameSave(t, family)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// recordedSaves returns what a file has of each family. A kernel without xt_nfacct has none of its rules.
func recordedSaves(t testing.TB, name string) map[string]string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	var four, six strings.Builder
	to := &four
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "Generated by ip") {
			to = map[bool]*strings.Builder{true: &six, false: &four}[strings.Contains(line, "Generated by ip6")]
		}
		if !strings.Contains(line, "-m nfacct") {
			to.WriteString(line)
		}
	}
	return map[string]string{ruleset.IPv4: four.String(), ruleset.IPv6: six.String()}
}

// TestSaveForms: every form of a rule is the same over netlink as iptables-nft-save says.
func TestSaveForms(t *testing.T) {
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		restored(t, family, savedForms(family))
	}
}

// TestSaveRecorded: what kube-proxy wrote and was recorded is, too.
func TestSaveRecorded(t *testing.T) {
	for _, name := range []string{testdata + "iptables-save.txt", testdata + "fields-iptables.txt", testdata + "iptables-save-5000x10.txt.gz",
		"../../../checks/checkstest/kube-proxy.iptables-save"} {
		for family, save := range recordedSaves(t, name) {
			if save != "" {
				restored(t, family, save)
			}
		}
	}
}

// TestSaveUnknown: what is not known is an error that says where, never a poorer rule.
func TestSaveUnknown(t *testing.T) {
	for _, c := range []struct{ rule, want string }{
		{"-m u32 --u32 0=1 -j DROP", `table filter, chain FORWARD, rule N: expression "match": u32.0: not known`},
		{"-p tcp -m tcp --dport 1:1024", `table filter, chain FORWARD, rule N: expression "range": not known`},
		{"-p tcp -m tcp --dport :1024", `table filter, chain FORWARD, rule N: expression "cmp": not of a form that is known`},
		{"-p tcp -m tcp --syn -j ACCEPT", `table filter, chain FORWARD, rule N: expression "payload": not of a form that is known`},
		{"-p gre -j ACCEPT", `table filter, chain FORWARD, rule N: expression "cmp": protocol 47 is not known`},
		{"-m conntrack --ctstate NEW --ctdir REPLY", `table filter, chain FORWARD, rule N: expression "match": conntrack.3: not of a form that is known`},
		{"-j LOG --log-prefix x", `table filter, chain FORWARD, rule N: expression "target": LOG.0: not known`},
		{"! -i +", `table filter, chain FORWARD, rule N: expression "cmp": not of a form that is known`},
		{"-m limit --limit 5/sec", `table filter, chain FORWARD, rule N: expression "limit": not known`},
	} {
		err := scratch(t).Do(t.Context(), func() error {
			if _, err := run("*filter\n-A FORWARD -j ACCEPT\n-A FORWARD "+c.rule+"\nCOMMIT\n", program(t, ruleset.IPv4, "-restore")); err != nil {
				return err
			}
			set, err := overNetlink(t, ruleset.IPv4)
			if got := regexp.MustCompile(`rule \d+`).ReplaceAllString(fmt.Sprint(err), "rule N"); set != nil || got != c.want {
				t.Errorf("%s: %v, %s", c.rule, set, got)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSaveForeign: what nft itself has put into a table of iptables' name.
func TestSaveForeign(t *testing.T) {
	for _, c := range []struct{ commands, want string }{
		{"add table ip filter", ""},
		{"add table ip filter; add chain ip filter x; add rule ip filter x ip saddr 10.0.0.1 counter drop comment \"of nft\"", ""},
		{"add table ip mine; add chain ip mine x { type filter hook input priority 0; }; add rule ip mine x tcp dport { 1, 2 } drop", ""},
		{"add table ip filter; add chain ip filter x { type filter hook input priority 0; }",
			`table filter, chain "x": its hook is none that iptables makes`},
		{"add table ip filter; add chain ip filter INPUT { type filter hook input priority 5; }",
			`table filter, chain "INPUT": its hook is none that iptables makes`},
		{"add table ip filter; add chain ip filter x; add rule ip filter x tcp dport { 1, 2 } drop",
			`table filter, chain x, rule N: expression "lookup": not known`},
		{"add table ip filter; add chain ip filter x; add rule ip filter x ip saddr 10.0.0.1 reject",
			`table filter, chain x, rule N: expression "reject": not known`},
		{"add table ip filter; add chain ip filter x; add rule ip filter x drop comment \"a\tb\"",
			`table filter, chain x, rule N: a text that is none of one line`},
		{"add table ip filter; add chain ip filter x; add rule ip filter x meta mark set 1",
			`table filter, chain x, rule N: expression "immediate": not of a form that is known`},
	} {
		err := scratch(t).Do(t.Context(), func() error {
			if _, err := nft(c.commands, "-f", "-"); err != nil {
				return err
			}
			if c.want == "" {
				return sameSave(t, ruleset.IPv4)
			}
			set, err := overNetlink(t, ruleset.IPv4)
			if got := regexp.MustCompile(`rule \d+`).ReplaceAllString(fmt.Sprint(err), "rule N"); set != nil || got != c.want {
				t.Errorf("%s: %v, %s", c.commands, set, got)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
