package gate

import (
	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/verdict"
)

// warn logs each result that only warns, in one line. An announced one has been reported.
func (g *Gate) warn(r checks.Outcome) {
	for _, res := range r.Results {
		if res.Verdict == verdict.Warn && !res.Announce && !res.IsSymptom() {
			m := report.NewMessage(res)
			g.Voice.log(host.LevelWarning, "nodegate: warning: "+m.Text, m.Fields)
		}
	}
}
