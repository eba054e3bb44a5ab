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

// tolerance is the greatest difference of equal probabilities.
const tolerance = 1e-9

// Is reports whether r is the rule w.
func (w *Rule) Is(r *ruleset.Rule) bool {
	if r.Flags&Known != w.Flags || r.Target != w.Target || r.Port != w.Port || r.Protocol != w.Protocol ||
		math.Abs(r.Chance-w.Chance) > tolerance || r.Destination != w.Destination ||
		r.Source != w.Source && model.TrimCIDR(r.Source) != model.TrimCIDR(w.Source) ||
		r.To != w.To && w.To != "" && !r.Has(ruleset.Unprintable) {
		return false
	}
	if w.Flags&(ruleset.ByInterface|ruleset.ByState|ruleset.ByMark|ruleset.ByRecent|ruleset.RecentSet) == 0 && w.SetMark == "" {
		return true
	}
	e := r.Extra()
	return (w.In == "" || e.In == w.In) && (w.States == "" || sameWords(e.States, w.States)) && sameMark(e.Mark, w.Mark) &&
		sameMark(e.SetMark, w.SetMark) && (w.Recent == "" || e.Recent == w.Recent) && (w.Seconds <= 0 || e.Seconds == w.Seconds)
}

func sameWords(a, b string) bool {
	before, after, both := strings.Cut(b, ",")
	return a == b || both && a == after+","+before
}

func sameMark(a, b string) bool {
	if a == b {
		return true
	}
	mark, mask, ok := model.MarkMask(a)
	m, k, also := model.MarkMask(b)
	return ok && also && mark == m && mask == k
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
	put(w.Seconds > 0, 0, "-m recent --rcheck --seconds", w.Seconds)
	put(w.Port != "", 0, "--dport", w.Port)
	put(w.Target != "", 0, "-j", w.Target)
	put(w.SetMark != "", 0, "--set-xmark", w.SetMark)
	put(w.To != "", 0, "--to-destination", w.To)
	return text
}
