package gate

import (
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/report"
	"nodegate/policy"
)

// leaveWords writes the report to the console, and to pstore where a program may, which outlive the machine, once for each change.
func (g *Gate) leaveWords(p *policy.Policy, r checks.Report) {
	lines, err := report.LastWords(report.New(g.Host, p, r))
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
