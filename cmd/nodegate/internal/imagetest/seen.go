package imagetest

import (
	"regexp"
	"strings"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host/qemu"
	"nodegate/internal/verdict"
)

// observation is the state of a boot so far, as shown by its console and by the gate's port.
type observation struct {
	report  *report.Report // the gate's newest report
	held    string         // the gate's newest reason for holding the unit
	off     string         // the gate's message that break-glass is in force
	ending  string         // how the boot has ended, "" while it continues
	hung    string         // the kernel's newest message about a hung processor, which may have recovered
	last    string         // the console's last line
	console string
	at      int // offset of ending in console
}

// endings returns the messages of a boot that ends before the gate. They come from the kernel, systemd, dracut, Debian's
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

func observe(console, port string) observation {
	console = regexp.MustCompile(`\n\s*\n`).ReplaceAllString(console, "\n") // drop the empty lines of boot menus
	s := observation{console: console}
	for line := range strings.Lines(port) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "nodegate: held"):
			s.held = line
		case strings.HasPrefix(line, "nodegate: break-glass in force"):
			s.off = line
		}
	}
	// The error is about incomplete reports, which may still arrive.
	reports, _ := report.DecodeConsole("the port", strings.NewReader(port))
	for i := range reports {
		// The gate of an earlier nodegate could report a pass without any result between two checks.
		if r := &reports[i].Report; len(r.Results) > 0 || r.Verdict != verdict.Pass {
			s.report = r
		}
	}
	// The messages are from kernel/watchdog.c and kernel/rcu/tree_stall.h.
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

func (s observation) passed() bool { return s.report != nil && s.report.Verdict == verdict.Pass }

// state returns a summary of the observation, or "" if there is nothing to judge yet. Equal states have the same verdict.
func (s observation) state() string {
	switch {
	case s.report != nil:
		return s.report.Verdict.String()
	case s.ending != "":
		return s.ending
	}
	return s.held
}

const (
	linesBefore, linesAfter = 12, 6 // lines around the ending of a boot
	silentLines             = 20    // lines of a boot without a known ending
	failedLines             = 10    // systemd's lines about earlier failed units
)

// excerpt returns the relevant lines of the console.
func (s observation) excerpt() string {
	end, lines := len(s.console), silentLines
	if s.ending != "" {
		rest := strings.SplitAfterN(s.console[s.at:], "\n", linesAfter+2)
		end, lines = s.at+len(strings.Join(rest[:min(len(rest), linesAfter+1)], "")), linesBefore+linesAfter
	}
	last := qemu.Tail(s.console[:end], lines)
	var units []string
	for line := range strings.Lines(strings.TrimSuffix(strings.TrimRight(s.console[:end], "\n"), last)) {
		if regexp.MustCompile(`^\[(FAILED|DEPEND| TIME )\]`).MatchString(line) {
			units = append(units, line)
		}
	}
	return strings.Join(units[:min(len(units), failedLines)], "") + last
}
