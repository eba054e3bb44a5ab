// Package expect lists kube-proxy's rules: the rules of each chain, for a model of Services and the parameters of a release.
package expect

import (
	"fmt"
	"math"
	"strings"

	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
)

// Rule is a rule as kube-proxy writes it, in a canonical form: comments and counters do not count.
type Rule struct {
	Chain                                           int32 // Index; 0 in a list for one chain
	Flags                                           ruleset.Flags
	Target, Source, Destination, Protocol, Port, To string
	Chance                                          float64
	In, States, Mark, SetMark, Recent               string
	Seconds                                         int32 // -1 if any will do
}

// Known are the flags that count. Others are about how a rule was read.
const Known = ruleset.Conditions | ruleset.NotSource | ruleset.NotDestination | ruleset.NotMark | ruleset.NotInterface | ruleset.RecentSet |
	ruleset.RecentReap | ruleset.RecentOther | ruleset.RandomFully

// Sheet collects the rules of one chain, or the rules of one Service in chains that Services share.
type Sheet struct{ Rules []Rule }

// add adds a rule. Its conditions are the fields that are set, and r.Flags.
func (s *Sheet) add(r Rule) {
	r.Source, r.Destination = model.TrimCIDR(r.Source), model.TrimCIDR(r.Destination)
	s.Rules = append(s.Rules, r)
	w := &s.Rules[len(s.Rules)-1]
	set := func(is bool, flags ruleset.Flags) {
		if is {
			w.Flags |= flags
		}
	}
	set(w.Source != "", ruleset.BySource)
	set(w.Destination != "", ruleset.ByDestination)
	set(w.Protocol != "", ruleset.ByProtocol)
	set(w.Port != "", ruleset.ByPort)
	set(w.In != "", ruleset.ByInterface)
	set(w.States != "", ruleset.ByState)
	set(w.Mark != "", ruleset.ByMark)
	set(w.Chance > 0, ruleset.ByChance)
	set(w.Seconds != 0, ruleset.ByRecent|ruleset.RecentReap)
}

// Read returns a rule of a save, without its chain.
func Read(r *ruleset.Rule) Rule {
	w := Rule{Flags: r.Flags & Known, Target: r.Target, Source: model.TrimCIDR(r.Source), Destination: model.TrimCIDR(r.Destination),
		Protocol: r.Protocol, Port: r.Port, To: r.To, Chance: r.Chance}
	if n := math.Round(1 / w.Chance); w.Chance > 0 && math.Abs(w.Chance-1/n) < 1e-9 { // the kernel stores it in 31 bits
		w.Chance = 1 / n
	}
	if r.Has(ruleset.Unprintable) {
		w.To = ""
	}
	if w.Flags&(ruleset.ByInterface|ruleset.ByState|ruleset.ByMark|ruleset.ByRecent|ruleset.RecentSet) == 0 && r.Target != "MARK" {
		return w
	}
	e := r.Extra()
	w.In, w.States, w.Mark, w.SetMark, w.Recent, w.Seconds = e.In, e.States, sameMark(e.Mark), sameMark(e.SetMark), e.Recent, e.Seconds
	if w.States == "ESTABLISHED,RELATED" {
		w.States = "RELATED,ESTABLISHED"
	}
	return w
}

// sameMark returns one text for all ways to write a mark.
func sameMark(s string) string {
	if mark, mask, ok := model.MarkMask(s); ok && s != "" {
		return fmt.Sprintf("%#x/%#x", mark, mask)
	}
	return s
}

// Text writes the rule as iptables-save does, without comments.
func (w *Rule) Text(chain string) string {
	text := "-A " + chain
	put := func(is bool, not ruleset.Flags, option string, value any) {
		if is && w.Flags&not != 0 {
			text += " !"
		}
		if is {
			text += fmt.Sprint(" ", option, " ", value)
		}
	}
	put(w.Source != "", ruleset.NotSource, "-s", w.Source)
	put(w.Destination != "", ruleset.NotDestination, "-d", w.Destination)
	put(w.In != "", ruleset.NotInterface, "-i", w.In)
	put(w.Protocol != "", 0, "-p", w.Protocol)
	put(w.Mark != "", ruleset.NotMark, "-m mark --mark", w.Mark)
	put(w.States != "", 0, "-m conntrack --ctstate", w.States)
	put(w.Flags&ruleset.FromLocal != 0, 0, "-m addrtype --src-type", "LOCAL")
	put(w.Flags&ruleset.ToLocal != 0, 0, "-m addrtype --dst-type", "LOCAL")
	put(w.Chance > 0, 0, "-m statistic --mode random --probability", fmt.Sprintf("%.11f", w.Chance))
	put(w.Flags&ruleset.ByRecent != 0, 0, "-m recent --rcheck --seconds", strings.Replace(fmt.Sprint(w.Seconds), "-1", "...", 1))
	put(w.Flags&ruleset.RecentReap != 0, 0, "--reap --name", w.Recent)
	put(w.Flags&ruleset.RecentSet != 0, 0, "-m recent --set --name", w.Recent)
	put(w.Port != "", 0, "--dport", w.Port)
	put(w.Target != "", 0, "-j", w.Target)
	put(w.SetMark != "", 0, "--set-xmark", w.SetMark)
	put(w.To != "", 0, "--to-destination", w.To)
	if w.Flags&ruleset.RandomFully != 0 {
		text += " --random-fully"
	}
	return text
}
