package gate

import (
	"strings"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
)

// leaveWords writes the console report, once for each change. The console's log outlives the machine.
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
	}
}
