package path

// SourcedElsewhere returns the rule that certainly gives packets a source which is not an address of the node.
func (all *Rules) SourcedElsewhere(ways []Way) (step Step, of Way, surely bool) {
	others := false // ways of packets that keep a right source
	for _, w := range ways {
		others = others || !w.dropped() && !all.hasOtherSource(&w)
	}
	for _, w := range ways {
		if !all.hasOtherSource(&w) || others && !w.Sure {
			continue
		}
		for _, s := range w.Steps {
			if s.Effect == Sources && s.Unsure == "" {
				if !others {
					w.Chance = 1
				}
				return s, w, true
			}
		}
	}
	return Step{}, Way{}, false
}

func (all *Rules) hasOtherSource(w *Way) bool {
	return w.End == Forwarded && w.Packet.snat && all.node.own(w.Packet.Source) == No
}
