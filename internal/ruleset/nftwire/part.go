package nftwire

// Targets returns the chains to which the elements of the named sets lead. The caller adds those
// that it needs.
func (d *Decoder) Targets() []string {
	var names []string
	for _, name := range d.names {
		if s := d.sets[name]; s.out != nil {
			for i := range s.elements {
				if to := s.elements[i].verdict.chain; to != "" {
					names = append(names, to)
				}
			}
		}
	}
	return names
}

// TargetsOf returns the chains to which the rules of a chain lead.
func (d *Decoder) TargetsOf(chain string) []string {
	var names []string
	for _, r := range d.table.Chain(chain).Rules {
		if r.Target != "" {
			names = append(names, r.Target)
		}
		for _, e := range r.Entries {
			names = append(names, e.Target)
		}
	}
	return names
}
