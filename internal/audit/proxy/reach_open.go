package proxy

import (
	"fmt"
	"slices"
	"strings"

	"nodegate/internal/audit/path"
)

// undecided collects the packets that a rule drops if its condition holds, or passes only if it holds.
type undecided struct {
	who  []string
	loss path.Loss
	rare bool
}

// addOpen records a loss that depends on a condition which nothing known decides.
func (r *reach) addOpen(who string, loss *path.Loss) {
	key := stepKey(loss.Way.Open.At)
	u := r.notes[key]
	if u == nil {
		u = &undecided{loss: *loss, rare: true}
		r.notes[key] = u
		r.open = append(r.open, key)
	}
	if !slices.Contains(u.who, who) {
		u.who = append(u.who, who)
	}
	// A file has no elements of sets: only on the node itself it is a fault of this audit that they are not known.
	u.rare = u.rare && (loss.Way.Rare || r.opts.Own == nil && strings.Contains(loss.Way.Open.Condition, "-m set "))
}

// reportOpen makes a note of each open condition that usually concerns few packets, and otherwise a finding.
func (r *reach) reportOpen() {
	for _, key := range r.open {
		u := r.notes[key]
		if r.found[key] != nil || r.found[stepKey(u.loss.Step)] != nil {
			continue
		}
		at := u.loss.Way.Open.At
		t := taken{step: at}
		rule := at.Rule
		if rule == "" {
			rule = at.Does
		}
		place := fmt.Sprintf("chain %s of table %s", at.Chain, at.Table)
		if owner := t.owner(); owner != "" {
			place += " (" + owner + ")"
		}
		message := fmt.Sprintf("packets %s meet the rule `%s` in %s: whether it drops them depends on "+
			"`%s`", strings.Join(u.who[:min(3, len(u.who))], ", "),
			rule, place, u.loss.Way.Open.Condition)
		if stepKey(u.loss.Step) != key {
			message = fmt.Sprintf("packets %s meet the rule `%s` in %s: whether they pass or a later rule (%s %s) drops them depends on `%s`",
				strings.Join(u.who[:min(3, len(u.who))], ", "), rule, place, u.loss.Step.Chain, u.loss.Step.Does, u.loss.Way.Open.Condition)
		}
		if u.rare {
			if !slices.Contains(r.rep.Notes, message) {
				r.rep.Notes = append(r.rep.Notes, message)
			}
			continue
		}
		r.addOnce(Finding{Name: "kubeproxy.way.undecided", Family: r.family, Table: at.Table, Chain: at.Chain, Line: at.Line, Handle: at.Handle,
			Rule: at.Rule, Message: message})
	}
}
