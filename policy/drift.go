package policy

// defaultDrift sets the drift that no block sets. With repair = false, drift
// defaults to "report": the author wants a person to look, so that watch does not
// correct either.
func (p *Policy) defaultDrift() {
	usual := Correct
	if !p.Gate.Repair {
		usual = Report
	}
	unless := func(a *Metadata, d Drift) {
		if a.Drift == "" {
			a.Drift = d
		}
	}
	for i := range p.Modules {
		unless(&p.Modules[i].Metadata, usual)
	}
	for i := range p.Sysctls {
		unless(&p.Sysctls[i].Metadata, usual)
	}
	for i := range p.Links {
		unless(&p.Links[i].Metadata, usual)
	}
	for i := range p.Problems {
		unless(&p.Problems[i].Metadata, Report)
	}
	for i := range p.Probes {
		p.Probes[i].Drift = Ignore // watch sends no packets
	}
}
