package ruleset

import (
	"strings"

	"nodegate/internal/input"
)

// parseRule reads a rule, with or without counters: "[1:2] -A CHAIN ..." or "-A CHAIN ...".
func (p *saveParser) parseRule(s string) error {
	if s[0] == '[' {
		i := strings.IndexByte(s, ']')
		if i < 0 {
			return p.unreadable("the counters lack a closing bracket: %.60q", s)
		}
		s = strings.TrimLeft(s[i+1:], " ")
	}
	rest, ok := strings.CutPrefix(s, "-A ")
	if !ok {
		return p.unreadable(noLine, s)
	}
	if p.table == nil {
		return p.unreadable("this is only a part: rule outside of a table: %.60q", s)
	}
	name, rest, _ := strings.Cut(rest, " ")
	if isEdited(name) {
		return p.unreadable(edited+": %.120q", s)
	}
	if name == "" {
		return p.unreadable("rule without a chain: %.60q", s)
	}
	if p.chain == nil || p.chain.Name != name {
		if err := p.enterChain(name); err != nil {
			return err
		}
	}
	if err := p.countItem(); err != nil {
		return err
	}
	r := p.newRule()
	r.Text, r.Line, r.Chain = s, int32(p.lines.N), p.chain.Index
	if msg := r.parse(rest); msg != "" {
		return p.unreadable("%s: %.120q", msg, s)
	}
	return nil
}

func (p *saveParser) countItem() error {
	if p.items++; p.items > maxItems {
		return input.Unknown(p.lines.N, "more than %d chains and rules", maxItems)
	}
	return nil
}

// enterChain makes a chain the current one. Rules appear in the order of the chain declarations, so one
// of the next few chains usually matches.
func (p *saveParser) enterChain(name string) error {
	if err := p.indexChains(); err != nil {
		return err
	}
	if last := p.leaveChain(); last != nil {
		after := p.table.Chains[last.Index-p.table.Chains[0].Index+1:]
		for _, c := range after[:min(len(after), 4)] {
			if c.Name == name {
				p.chain = c
				return nil
			}
		}
	}
	if p.chain = p.table.byName[name]; p.chain != nil {
		return nil
	}
	c, err := p.newChain(name)
	p.chain = c
	return err
}

// leaveChain assigns to the current chain the rules that were read since enterChain, and returns the chain.
func (p *saveParser) leaveChain() *Chain {
	c, run := p.chain, p.rules[p.run:len(p.rules):len(p.rules)]
	switch {
	case c == nil:
	case c.Rules == nil:
		c.Rules = run
	default:
		c.Rules = append(c.Rules, run...)
	}
	p.chain, p.run = nil, len(p.rules)
	return c
}

func (p *saveParser) newChain(name string) (*Chain, error) {
	if err := p.countItem(); err != nil {
		return nil, err
	}
	if len(p.freeChains) == 0 {
		p.freeChains = make([]Chain, slab)
	}
	c := &p.freeChains[0]
	p.freeChains = p.freeChains[1:]
	p.save.Chains++
	c.Name, c.Index = name, int32(p.save.Chains)
	p.table.Chains = append(p.table.Chains, c)
	if p.table.byName != nil {
		p.table.byName[name] = c
	}
	return c, nil
}

// newRule adds a rule to the current chain's run. The rules of a chain are contiguous in memory:
// when a slab is full, the current run moves to the next slab.
func (p *saveParser) newRule() *Rule {
	if len(p.rules) == cap(p.rules) {
		run := p.rules[p.run:]
		p.rules = append(make([]Rule, 0, max(slab, 2*len(run))), run...)
		p.run = 0
	}
	p.rules = p.rules[:len(p.rules)+1]
	return &p.rules[len(p.rules)-1]
}

// linkJumps resolves the jump target of every rule once all chains are known. One pass over all rules is
// cheaper than a lookup with each rule.
func (t *Table) linkJumps() {
	var to *Chain
	for _, c := range t.Chains {
		for i := range c.Rules {
			r := &c.Rules[i]
			if !r.Has(mayJump) {
				continue
			}
			if to == nil || to.Name != r.Target { // consecutive jumps often have the same target
				to = t.byName[r.Target]
			}
			if to == nil {
				c.Lost++
				continue
			}
			r.Jump = to.Index
			to.Refs++
		}
	}
}
