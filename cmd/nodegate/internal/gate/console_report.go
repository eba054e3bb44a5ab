package gate

import (
	"strings"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
)

// leaveWords writes the console report, once for each change. It also writes it to pstore if the kernel allows that. Both outlive the
// machine.
func (g *Gate) leaveWords(document report.Report) {
	lines, err := report.ConsoleReport(document)
	if err != nil {
		g.Voice.log(host.LevelWarning, "nodegate: console report: "+err.Error(), nil)
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

// tellTester writes the whole report to the image tester's port, once for each change.
func (g *Gate) tellTester(document report.Report) {
	has, known := g.port.Ask(answerTime, host.HasReportPort)
	if !known {
		g.Voice.write("report port", func() bool { return false })
	}
	if !has {
		return
	}
	short, err := report.ConsoleReport(document) // without times
	if err != nil || strings.Join(short, "\n") == g.tested {
		return
	}
	if lines, err := report.FullConsoleReport(document); err == nil {
		if g.untold = strings.Join(lines, "\n"); g.Voice.toTester(g.untold) {
			g.tested, g.untold = strings.Join(short, "\n"), ""
		}
	}
}

// insist retries to write the last report if the tester has not accepted it, because no other report follows. On a busy machine udev
// creates the port seconds after kubelet's start.
func (g *Gate) insist() {
	if g.untold != "" {
		g.deadline.Reset(finishTime + testerTime)
	}
	for tries := 6; g.untold != "" && tries > 0; tries-- {
		if host.Report(g.untold + "\n") {
			g.untold = ""
		}
	}
}
