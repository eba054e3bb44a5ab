package gate

import (
	"strings"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
)

// leaveWords writes the report to the console, and to pstore where a program may, which outlive the machine, once for each change.
func (g *Gate) leaveWords(document func() report.Report) {
	lines, err := report.LastWords(document())
	if err != nil {
		g.Voice.log(host.LevelWarning, "nodegate: last words: "+err.Error(), nil)
		return
	}
	if all := strings.Join(lines, "\n"); all != g.words {
		g.words = all
		for _, line := range lines {
			g.Voice.onConsole(line)
		}
		g.Voice.write("pstore", func() bool { return host.Persist(all + "\n") })
	}
}

// tellTester writes the whole report for whoever tests this machine's image, once for each change.
func (g *Gate) tellTester(document func() report.Report) {
	if !host.HasReportPort() {
		return
	}
	short, err := report.LastWords(document()) // without times
	if err != nil || strings.Join(short, "\n") == g.tested {
		return
	}
	if lines, err := report.AllWords(document()); err == nil {
		if g.untold = strings.Join(lines, "\n"); g.Voice.toTester(g.untold) {
			g.tested, g.untold = strings.Join(short, "\n"), ""
		}
	}
}

// insist writes the last report again that the tester did not accept: no other will follow it. On a busy machine udev makes the
// port seconds after kubelet's start.
func (g *Gate) insist() {
	for tries := 6; g.untold != "" && tries > 0; tries-- {
		if host.Report(g.untold + "\n") {
			g.untold = ""
		}
	}
}
