package host_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// inScratch calls test with this machine in a new network namespace.
func inScratch(t *testing.T, test func(h *host.Host) error) {
	t.Helper()
	h, err := host.Open("/")
	require.NoError(t, err)
	defer h.Close()
	n, err := netns.New(t.Context())
	require.NoError(t, err)
	defer n.Close()
	require.NoError(t, n.Do(t.Context(), func() error { return test(h) }))
}

// TestRulesGeneration: the generation stays the same while nothing changes and differs after any
// change; with the legacy backend it is not sure.
func TestRulesGeneration(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "nft")
	hosttest.NeedProgram(t, "iptables-legacy")
	inScratch(t, func(h *host.Host) error {
		last := ""
		for _, c := range []struct {
			change        string
			same, certain bool
		}{
			{"", false, true},
			{"", true, true},
			{"nft add table ip nodegate", false, true},
			{"iptables-nft -A OUTPUT -j ACCEPT", false, true},
			{"iptables-legacy -L", false, false},
			{"", true, false},
			{"iptables-legacy -A OUTPUT -d 192.0.2.1 -j ACCEPT", false, false},
			{"iptables-legacy -N KUBE-SERVICES", false, false},
			{"ip6tables-legacy -t nat -A PREROUTING -j ACCEPT", false, false},
			{"nft add chain ip nodegate x", false, false},
			{"iptables-legacy -D OUTPUT 1", false, false},
			{"", true, false},
		} {
			if words := strings.Fields(c.change); len(words) > 0 {
				if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
					return fmt.Errorf("%s: %w\n%s", c.change, err, out)
				}
			}
			generation, sure, err := h.RulesGeneration(t.Context())
			if err != nil {
				return err
			}
			assert.True(t, generation != "" && (generation == last) == c.same && sure == c.certain,
				"after %q: %q, sure: %v; before: %q", c.change, generation, sure, last)
			last = generation
		}
		return nil
	})
}

// TestTablesOfNFT: kube-proxy's tables are read over netlink. If that fails, nft prints them, and the set has a note about it.
func TestTablesOfNFT(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "nft")
	inScratch(t, func(h *host.Host) error {
		read := func() (source, note, rule string, err error) {
			sets, err := h.Rulesets(t.Context())
			for _, s := range sets {
				if len(s.NFT) == 1 && s.NFT[0].Family == "ip6" {
					return s.Source, s.Note, s.NFT[0].Chain("x").Rules[0].Text, err
				}
			}
			return "", "", "", err
		}
		for _, c := range []struct{ command, source, note, rule string }{
			{"add table ip kube-proxy-2", "", "", ""},
			{"add table ip6 kube-proxy; add chain ip6 kube-proxy x; add rule ip6 kube-proxy x meta l4proto tcp drop",
				"netlink: table ip6 kube-proxy",
				"", "meta l4proto tcp drop"},
			{"insert rule ip6 kube-proxy x ip6 hoplimit 1 drop", "nft -j list table ip6 kube-proxy",
				"table ip6 kube-proxy was read by nft -j, which is slower and needs more memory; reading it over netlink failed: " +
					"chain x, rule 3: expression \"payload\": unsupported form",
				"ip6 hoplimit 1 drop"},
		} {
			if out, err := exec.Command("nft", c.command).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%s", c.command, err, out)
			}
			source, note, rule, err := read()
			assert.True(t, err == nil && source == c.source && note == c.note && rule == c.rule,
				"%s: %q, %q, %q, %v", c.command, source, note, rule, err)
		}
		return nil
	})
}

// TestTablesOfIptables: iptables-nft's rules are read over netlink. If that fails, its save program
// prints them.
func TestTablesOfIptables(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "ip6tables-nft")
	inScratch(t, func(h *host.Host) error {
		for _, c := range []struct{ rule, source, text string }{
			{"-p tcp -m tcp --dport 443 -j DROP", "netlink: ip6tables-nft", "-A INPUT -p tcp -m tcp --dport 443 -j DROP"},
			{"-m u32 --u32 0=1", "ip6tables-nft-save", `-A INPUT -m u32 --u32 "0x0=0x1"`},
		} {
			args := append([]string{"-I", "INPUT"}, strings.Fields(c.rule)...)
			if out, err := exec.Command("ip6tables-nft", args...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%s", c.rule, err, out)
			}
			sets, err := h.Rulesets(t.Context())
			if err != nil || len(sets) != 1 || len(sets[0].Saves) != 1 {
				return fmt.Errorf("%s: %d sets, %w", c.rule, len(sets), err)
			}
			s := sets[0]
			text := s.Saves[0].Table("filter").Chain("INPUT").Rules[0].Text
			assert.True(t, s.Source == c.source && s.Note == "" && text == c.text && s.Saves[0].Family == "ip6" && s.Saves[0].Backend == "nft",
				"%s: %q, %q, %q", c.rule, s.Source, s.Note, text)
		}
		// A rule that iptables itself cannot print is an error that names the rule.
		if out, err := exec.Command("nft", "add rule ip6 filter INPUT tcp dport 1 reject").CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		_, err := h.Rulesets(t.Context())
		if !errors.Is(err, ruleset.ErrIncompatible) || !strings.Contains(err.Error(), "over netlink failed: table filter, chain INPUT, rule ") {
			t.Errorf("a rule of nft's own: %v", err)
		}
		// On a host without iptables-nft it is an error too, but the known rules are read all the same.
		if err := hide("/usr/sbin/ip6tables-nft"); err != nil {
			return err
		}
		_, err = h.Rulesets(t.Context())
		if errors.Is(err, ruleset.ErrIncompatible) || !strings.Contains(fmt.Sprint(err), "ip6tables-nft-save is not installed") ||
			!strings.Contains(fmt.Sprint(err), "over netlink failed: table filter, chain INPUT, rule ") {
			t.Errorf("without the program: %v", err)
		}
		if out, err := exec.Command("nft", "flush chain ip6 filter INPUT; add rule ip6 filter INPUT counter drop").CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		sets, err := h.Rulesets(t.Context())
		assert.True(t, err == nil && len(sets) == 1 && sets[0].Saves[0].Table("filter").Chain("INPUT").Rules[0].Text == "-A INPUT -j DROP",
			"without the program: %v, %v", sets, err)
		return nil
	})
}

// TestLegacyUnprinted: kube-proxy's rules in a backend without its save program are an error; empty
// tables and tables with other programs' rules are not.
func TestLegacyUnprinted(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "ip6tables-legacy")
	for _, c := range []struct {
		commands string
		ours     bool
	}{{"-L", false}, {"-N DOCKER,-A DOCKER -j ACCEPT", false}, {"-N KUBE-SERVICES,-A KUBE-SERVICES -j DROP", true}} {
		inScratch(t, func(h *host.Host) error {
			for command := range strings.SplitSeq(c.commands, ",") {
				if out, err := exec.Command("ip6tables-legacy", strings.Fields(command)...).CombinedOutput(); err != nil {
					return fmt.Errorf("%s: %w\n%s", command, err, out)
				}
			}
			if sets, err := h.Rulesets(t.Context()); err != nil || len(sets) != 1 || sets[0].Source != "ip6tables-legacy-save" {
				t.Errorf("%s: with the program: %v, %v", c.commands, sets, err)
			}
			if err := hide("/usr/sbin/ip6tables-legacy-save"); err != nil {
				return err
			}
			_, err := h.Rulesets(t.Context())
			if c.ours != (err != nil) || c.ours && !strings.Contains(err.Error(), "table filter of the legacy backend (ip6) has rules of "+
				"kube-proxy, but ip6tables-legacy-save is not installed; install ") {
				t.Errorf("%s: %v", c.commands, err)
			}
			return nil
		})
	}
}

// hide hides a program from the calling thread, which ends with its namespace.
func hide(program string) error {
	file, err := filepath.EvalSymlinks(program)
	if err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("/dev/null", file, "", unix.MS_BIND, "")
}
