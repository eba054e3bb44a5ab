package imagetest

import (
	"regexp"
	"strings"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host/qemu"
	"nodegate/internal/verdict"
)

// seen is what a boot has shown so far, at its console and at the gate's port.
type seen struct {
	report  *report.Report // the gate's newest
	held    string         // the gate's newest word on why it holds
	off     string         // its word that it is switched off
	ending  string         // what the boot ends in, "" while it goes on
	hung    string         // the kernel's newest words of a processor that hangs; it may have gone on since
	last    string         // the console's last line
	console string
	at      int // where in the console the ending is
}

// endings are how a boot ends that comes to no gate. The words are those of the kernel, systemd and dracut, Debian's
// initramfs-tools, SeaBIOS, OVMF, GRUB and SYSLINUX.
func endings() []struct{ what, says string } {
	return []struct{ what, says string }{
		{"kernel panic", `Kernel panic - not syncing.*`},
		{"emergency shell", `You are in (?:emergency|rescue) mode|Entering emergency mode|the root account is locked`},
		{"the initial RAM disk's shell", `(?m)^\(initramfs\)|^dracut:/#`},
		{"no boot", `No bootable device.*|Boot failed: not a bootable disk|^grub rescue>|^Shell> |BdsDxe: No bootable option.*|` +
			`^Could not find kernel image: .*|^Loading .* failed: .*|^No DEFAULT or UI configuration directive found!|` +
			`^Error loading .*Not [Ff]ound.*`},
	}
}

func see(console, port string) seen {
	console = regexp.MustCompile(`\n\s*\n`).ReplaceAllString(console, "\n") // of menus
	s := seen{console: console}
	for line := range strings.Lines(port) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "nodegate: held"):
			s.held = line
		case strings.HasPrefix(line, "nodegate: gate is switched off"):
			s.off = line
		}
	}
	// What is still incomplete is an error beside the reports that are whole.
	reports, _ := report.DecodeConsole("the port", strings.NewReader(port))
	for i := range reports {
		// The gate of an earlier nodegate could say between two checks that all of nothing passes.
		if r := &reports[i].Report; len(r.Results) > 0 || r.Verdict != verdict.Pass {
			s.report = r
		}
	}
	// The words of kernel/watchdog.c and kernel/rcu/tree_stall.h.
	hangs := regexp.MustCompile(`BUG: soft lockup - .*|rcu: INFO: .* (?:self-)?detected .*stall.*`)
	if words := hangs.FindAllString(console, -1); len(words) > 0 {
		s.hung = words[len(words)-1]
	}
	s.last = strings.TrimSpace(qemu.Tail(console, 1))
	for _, e := range endings() {
		if at := regexp.MustCompile(`(?m)` + e.says).FindStringIndex(console); at != nil {
			s.ending, s.at = e.what+": "+strings.TrimSpace(console[at[0]:at[1]]), at[0]
			break
		}
	}
	return s
}

func (s seen) passed() bool { return s.report != nil && s.report.Verdict == verdict.Pass }

// state is "" while there is nothing to judge. While it is the same, so is the verdict.
func (s seen) state() string {
	switch {
	case s.report != nil:
		return s.report.Verdict.String()
	case s.ending != "":
		return s.ending
	}
	return s.held
}

const (
	before, after = 12, 6 // lines around the one that says how a boot ends
	silent        = 20    // lines of a boot that does not say
	failed        = 10    // lines of systemd's about units that failed before those
)

// excerpt returns the console's lines that matter.
func (s seen) excerpt() string {
	end, lines := len(s.console), silent
	if s.ending != "" {
		rest := strings.SplitAfterN(s.console[s.at:], "\n", after+2)
		end, lines = s.at+len(strings.Join(rest[:min(len(rest), after+1)], "")), before+after
	}
	last := qemu.Tail(s.console[:end], lines)
	var units []string
	for line := range strings.Lines(strings.TrimSuffix(strings.TrimRight(s.console[:end], "\n"), last)) {
		if regexp.MustCompile(`^\[(FAILED|DEPEND| TIME )\]`).MatchString(line) {
			units = append(units, line)
		}
	}
	return strings.Join(units[:min(len(units), failed)], "") + last
}
