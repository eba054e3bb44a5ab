package proxy

import (
	"fmt"
	"slices"
	"strings"

	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
)

// judgeTables reports tables that are missing or flushed and removes them from the audit. It returns whether any table is left.
func (a *audit) judgeTables() bool {
	for _, t := range []struct {
		name string
		at   **ruleset.Table
	}{{"nat", &a.nat}, {"filter", &a.filter}} {
		switch {
		case *t.at == nil:
			a.out.Add(Finding{Name: "kubeproxy.table.missing", Family: a.save.Family, Table: t.name,
				Message: fmt.Sprintf("the save has no table %s: either it was made with -t, or the table is missing", t.name)})
		case !hasProxyRules(*t.at) && (*t.at != a.nat || !a.dispatchesNone()):
			a.out.Add(Finding{Name: "kubeproxy.table.flushed", Family: a.save.Family, Table: t.name, Line: (*t.at).Line,
				Message: fmt.Sprintf("table %s has no kube-proxy rules, but other tables do; "+
					"kube-proxy repairs a flush that keeps the canary chain only at its next full sync (1 h)", t.name)})
			*t.at = nil
		}
	}
	return a.nat != nil || a.filter != nil
}

// dispatchesNone reports whether table nat is as kube-proxy writes it if no Service of the family has endpoints and the node has none of
// the addresses of nodePortAddresses. Then KUBE-SERVICES, whose last rules jump to KUBE-NODEPORTS for each of these addresses, is empty,
// and table nat has only masquerading rules (syncProxyRules of pkg/proxy/iptables).
//
// A flush keeps the chains of Services. After a flush of an empty KUBE-SERVICES, kubelet until 1.27 may restore the masquerading rules,
// but not the jumps, which are judged. Judging without the Services does not depend on KUBE-SERVICES.
func (a *audit) dispatchesNone() bool {
	nodePorts := a.opts.NodePortAddresses != nil && *a.opts.NodePortAddresses
	if !nodePorts && !a.opts.WithoutServices || !a.filter.Declares("KUBE-SERVICES") {
		return false
	}
	for _, c := range a.nat.Chains {
		if kind, _ := model.ServiceChain(c.Name); kind != "" {
			return false
		}
	}
	for _, name := range []string{"KUBE-SERVICES", "KUBE-NODEPORTS"} {
		if c := a.nat.Chain(name); c == nil || !c.Declared() || len(c.Rules) > 0 {
			return false
		}
	}
	for r := range a.nat.Rules("KUBE-POSTROUTING") {
		if r.Target == "MASQUERADE" {
			return true
		}
	}
	return false
}

// hasProxyRules reports whether any of kube-proxy's own chains has a rule. It returns false for a nil table.
func hasProxyRules(t *ruleset.Table) bool {
	return t != nil && slices.ContainsFunc(t.Chains, func(c *ruleset.Chain) bool { return len(c.Rules) > 0 && isProxyChain(c) })
}

// judgeCanary checks that each table has an empty chain by which kube-proxy detects a flush.
func (a *audit) judgeCanary() {
	var missing []string
	for _, t := range []struct {
		name string
		t    *ruleset.Table
	}{{"mangle", a.mangle}, {"nat", a.nat}, {"filter", a.filter}} {
		if t.t == nil && (t.name != "mangle" || a.save.Table("nat") == nil || a.save.Table("filter") == nil) {
			continue // the table is reported, or the save has only one table
		}
		if !t.t.Declares("KUBE-PROXY-CANARY") {
			missing = append(missing, t.name)
		}
	}
	if len(missing) > 0 {
		a.out.Add(Finding{Name: "kubeproxy.canary.missing", Family: a.save.Family, Chain: "KUBE-PROXY-CANARY", Table: missing[0],
			Message: "no chain KUBE-PROXY-CANARY in " + strings.Join(missing, " and ") + ": another program flushed the rules"})
	}
}

// judgeRootJumps checks the jumps from the built-in chains to kube-proxy's chains. A jump must
// exist if its target chain exists. Those for new connections may have --ctstate NEW.
func (a *audit) judgeRootJumps() {
	const always, isNew = 0, ruleset.ByState
	for _, j := range []struct {
		t         *ruleset.Table
		from, to  string
		condition ruleset.Flags
	}{
		{a.nat, "PREROUTING", "KUBE-SERVICES", always},
		{a.nat, "OUTPUT", "KUBE-SERVICES", always},
		{a.nat, "POSTROUTING", "KUBE-POSTROUTING", always},
		{a.filter, "INPUT", "KUBE-EXTERNAL-SERVICES", isNew},
		{a.filter, "FORWARD", "KUBE-EXTERNAL-SERVICES", isNew},
		{a.filter, "FORWARD", "KUBE-SERVICES", isNew},
		{a.filter, "OUTPUT", "KUBE-SERVICES", isNew},
		{a.filter, "FORWARD", "KUBE-FORWARD", always},
		{a.filter, "INPUT", "KUBE-NODEPORTS", always},
		{a.filter, "INPUT", "KUBE-PROXY-FIREWALL", isNew},
		{a.filter, "FORWARD", "KUBE-PROXY-FIREWALL", isNew},
		{a.filter, "OUTPUT", "KUBE-PROXY-FIREWALL", isNew},
		{a.filter, "INPUT", "KUBE-FIREWALL", always},
		{a.filter, "OUTPUT", "KUBE-FIREWALL", always},
	} {
		if j.t == nil || !j.t.Declares(j.to) {
			continue
		}
		f := Finding{Name: "kubeproxy.jump.missing", Family: a.save.Family, Table: j.t.Name, Chain: j.from}
		base := j.t.Chain(j.from)
		if base == nil {
			f.Chain, f.Line = j.to, int(j.t.Chain(j.to).Line)
			f.Message = fmt.Sprintf("table %s has no chain %s that jumps to %s", j.t.Name, j.from, j.to)
			a.out.Add(f)
			continue
		}
		var first *ruleset.Rule
		found := false
		for i := range base.Rules {
			r := &base.Rules[i]
			states := r.Extra().States
			found = found || r.Target == j.to && r.Conditions()&^j.condition == 0 && (states == "" || states == "NEW")
			if r.Always() && first == nil && (r.Target == "ACCEPT" || r.Target == "DROP" || r.Target == "REJECT") {
				first = r
			}
		}
		f.Line, f.Message = int(base.Line), fmt.Sprintf("%s has no jump to %s that matches every packet", j.from, j.to)
		if first != nil {
			f.Message += fmt.Sprintf("; its first rule %q matches every packet", first.Text)
		}
		if !found {
			a.out.Add(f)
		}
	}
}
