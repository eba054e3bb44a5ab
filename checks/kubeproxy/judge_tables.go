package kubeproxy

import (
	"fmt"
	"strings"
)

// judgeTables finds tables that are missing or flushed and takes them out of the audit. It reports whether anything is left.
func (a *audit) judgeTables() bool {
	for _, t := range []struct {
		name string
		at   **table
	}{{"nat", &a.nat}, {"filter", &a.filter}} {
		switch {
		case *t.at == nil:
			a.out.add(Finding{Name: "kubeproxy.table.missing", Family: a.save.family, Table: t.name,
				Message: fmt.Sprintf("the save has no table %s: either it was made with -t, or the table is gone", t.name)})
		case !(*t.at).holdsKubeProxy():
			a.out.add(Finding{Name: "kubeproxy.table.flushed", Family: a.save.family, Table: t.name, Line: (*t.at).line,
				Message: fmt.Sprintf("table %s holds no rule of kube-proxy, other tables do; a flush that leaves the canary chain is not repaired before the next full sync (1 h)", t.name)})
			*t.at = nil
		}
	}
	return a.nat != nil || a.filter != nil
}

// holdsKubeProxy reports whether any chain of kube-proxy's own has a rule.
func (t *table) holdsKubeProxy() bool {
	for _, c := range t.order {
		if c.n == 0 {
			continue
		}
		switch c.name {
		case "KUBE-SERVICES", "KUBE-FORWARD", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS":
			return true
		}
		if kind, _ := serviceChain(c.name); kind != "" {
			return true
		}
	}
	return false
}

// judgeDeclarations: invariant 1. One finding for a chain that is missing, however many rules lead to it.
func (a *audit) judgeDeclarations() {
	reported := map[string]bool{}
	for _, t := range a.save.tables {
		for _, c := range t.order {
			if !c.declared && strings.HasPrefix(c.name, "KUBE-") {
				reported[t.name+" "+c.name] = true
				a.about("kubeproxy.chain.undeclared", t.name, c, c.first, nil, "chain %s has rules but table %s does not declare it", c.name, t.name)
			}
		}
	}
	for _, d := range a.dangling {
		t, r := d.t, d.r
		if !strings.HasPrefix(r.target, "KUBE-") || reported[t.name+" "+r.target] {
			continue
		}
		reported[t.name+" "+r.target] = true
		a.out.add(Finding{Name: "kubeproxy.chain.undeclared", Family: a.save.family, Table: t.name, Chain: r.target, Line: int(r.line), Rule: r.text,
			Message: fmt.Sprintf("%s jumps to %s, which table %s does not have", r.chain.name, r.target, t.name)})
		r.chain.blamed = true
	}
}

// judgeLoops finds chains that jump in a circle. The kernel refuses them; a file may hold them.
func (a *audit) judgeLoops() {
	const (
		open   = 1
		closed = 2
	)
	type frame struct {
		c    *chain
		next *rule
	}
	for _, t := range a.save.tables {
		for _, root := range t.order {
			if root.state != 0 || !root.deep {
				continue
			}
			root.state = open
			stack := []frame{{root, root.first}}
			for len(stack) > 0 {
				top := &stack[len(stack)-1]
				r := top.next
				if r == nil {
					top.c.state = closed
					stack = stack[:len(stack)-1]
					continue
				}
				top.next = r.next
				switch {
				case r.jump == nil || !r.jump.deep: // a circle consists of deep chains
				case r.jump.state == 0:
					r.jump.state = open
					stack = append(stack, frame{r.jump, r.jump.first})
				case r.jump.state == open:
					a.about("kubeproxy.jump.loop", t.name, top.c, r, nil, "%s leads back to %s", top.c.name, r.jump.name)
					for i := range stack {
						stack[i].c.blamed = true
					}
				}
			}
		}
	}
}

// judgeCanary: invariant 10. From 1.17 an empty chain stands in each table, so that kube-proxy notices a flush.
func (a *audit) judgeCanary() {
	if a.version.Min < 17 {
		return
	}
	var missing []string
	for _, t := range []struct {
		name string
		t    *table
	}{{"mangle", a.mangle}, {"nat", a.nat}, {"filter", a.filter}} {
		if t.t == nil && (t.name != "mangle" || a.save.table("nat") == nil || a.save.table("filter") == nil) {
			continue // reported as a table, or the save is of one table only
		}
		if !t.t.declared("KUBE-PROXY-CANARY") {
			missing = append(missing, t.name)
		}
	}
	if len(missing) > 0 {
		a.out.add(Finding{Name: "kubeproxy.canary.missing", Family: a.save.family, Chain: "KUBE-PROXY-CANARY", Table: missing[0],
			Message: "no chain KUBE-PROXY-CANARY in " + strings.Join(missing, " and ") + ": somebody flushed it"})
	}
}

// judgeRootJumps: the way into kube-proxy's chains. A jump is wanted where the chain exists and the version writes it.
func (a *audit) judgeRootJumps() {
	for _, j := range []struct {
		t        *table
		name     string
		from, to string
		since    int
	}{
		{a.nat, "nat", "PREROUTING", "KUBE-SERVICES", 0},
		{a.nat, "nat", "OUTPUT", "KUBE-SERVICES", 0},
		{a.nat, "nat", "POSTROUTING", "KUBE-POSTROUTING", 0},
		{a.filter, "filter", "INPUT", "KUBE-EXTERNAL-SERVICES", 0},
		{a.filter, "filter", "FORWARD", "KUBE-EXTERNAL-SERVICES", 20},
		{a.filter, "filter", "FORWARD", "KUBE-SERVICES", 0},
		{a.filter, "filter", "OUTPUT", "KUBE-SERVICES", 0},
		{a.filter, "filter", "FORWARD", "KUBE-FORWARD", 0},
		{a.filter, "filter", "INPUT", "KUBE-NODEPORTS", 21},
		{a.filter, "filter", "INPUT", "KUBE-PROXY-FIREWALL", 25},
		{a.filter, "filter", "FORWARD", "KUBE-PROXY-FIREWALL", 25},
		{a.filter, "filter", "OUTPUT", "KUBE-PROXY-FIREWALL", 25},
		{a.filter, "filter", "INPUT", "KUBE-FIREWALL", 0},
		{a.filter, "filter", "OUTPUT", "KUBE-FIREWALL", 0},
	} {
		if j.t == nil || !j.t.declared(j.to) || a.version.Min < j.since {
			continue
		}
		a.judgeRootJump(j.t, j.from, j.to)
	}
}

// jumpCondition is the condition that a root jump may have: those that judge new connections carry --ctstate NEW.
func jumpCondition(table, to string) flags {
	if table == "filter" && (to == "KUBE-SERVICES" || to == "KUBE-EXTERNAL-SERVICES" || to == "KUBE-PROXY-FIREWALL") {
		return condState
	}
	return 0
}

func (a *audit) judgeRootJump(t *table, from, to string) {
	base := t.chain(from)
	c := t.chain(to)
	if base == nil {
		a.about("kubeproxy.jump.missing", t.name, c, nil, nil, "no chain %s in table %s leads to %s", from, t.name, to)
		return
	}
	var first *rule
	for r := base.first; r != nil; r = r.next {
		if r.target == to && r.flags&conds&^jumpCondition(t.name, to) == 0 && (r.detail == "" || r.detail == "NEW") {
			return
		}
		if r.jump == nil && strings.HasPrefix(r.target, "KUBE-") {
			c.blamed = true // misspelt: reported as undeclared
			return
		}
		if r.always() && first == nil && (r.target == "ACCEPT" || r.target == "DROP" || r.target == "REJECT") {
			first = r
		}
	}
	c.blamed = true
	msg := fmt.Sprintf("%s has no jump to %s that takes every packet", from, to)
	if first != nil {
		msg += fmt.Sprintf(", and its rule %q decides every packet", first.text)
	}
	a.out.add(Finding{Name: "kubeproxy.jump.missing", Family: a.save.family, Table: t.name, Chain: from, Line: int(base.line), Message: msg})
}
