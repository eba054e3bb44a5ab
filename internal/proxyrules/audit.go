package proxyrules

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"nodegate/internal/ruleset"
)

// audit judges one save. The rules are shared with others and do not change: what it learns of a chain is in chains.
type audit struct {
	opts    *Options
	out     *Collector
	save    *ruleset.Save
	nat     *ruleset.Table // nil: missing or flushed, as are the next two
	filter  *ruleset.Table
	mangle  *ruleset.Table
	chains  []chain // by Index; the first is none
	version VersionRange
	hash    hasher

	nodes        []*node
	byName       map[nodeKey]*node
	broken       map[string]bool // Services with a finding, by name: a damaged rule may have lost its protocol
	detector     string          // what most Services masquerade: "all", "not from 100.96.0.0/11"; empty: nothing
	portalsEmpty bool
	nodePorts    bool                         // are answered at some address
	portsDamaged bool                         // a rule of KUBE-NODEPORTS is no longer what it was
	large        bool                         // large-cluster mode: no comments on dispatch, chains stay that are out of use
	mark         uint64                       // the bit that KUBE-MARK-MASQ sets
	dangling     []dangling                   // rules whose target should be a chain of the table and is not
	kinds        map[string]map[string]*chain // Service chains by kind and hash
	drops        map[string]bool              // by comment: what KUBE-PROXY-FIREWALL drops
	rivals       []claim                      // second and further claims to an endpoint
	strangers    []claim                      // to an endpoint of another Service, it seems
	unreadable   int
	firstUnread  *ruleset.Rule

	stamp   int32
	targets []*ruleset.Rule // scratch of judgeDispatch
	recents []*ruleset.Rule
}

// chain is what the audit knows of a chain.
type chain struct {
	*ruleset.Chain
	stamp  int32 // of the dispatch that met it last
	deep   bool  // leads to a chain that leads on
	blamed bool  // a finding explains it; its symptoms stay silent
	left   bool  // out of use, and not yet taken away
	state  uint8 // of judgeLoops
	owner  *node // the Service whose chain it is, once known

	// Of an endpoint's chain:
	claim     claim         // the first dispatch that leads to it
	translate *ruleset.Rule // its DNAT rule
	address   string        // where that leads
}

// dangling is a rule that should lead to a chain of kube-proxy and leads to none.
type dangling struct {
	t *ruleset.Table
	r *ruleset.Rule
}

type nodeKey struct{ name, proto string }

// node is one Service port with its chains.
type node struct {
	nodeKey
	svc, svl, ext, fw, xlb *chain

	cluster  *ruleset.Rule // nat KUBE-SERVICES rule of the ClusterIP
	nodePort *ruleset.Rule // nat KUBE-NODEPORTS rule for every address
	loopback *ruleset.Rule // nat KUBE-NODEPORTS rule for 127.0.0.0/8 alone, from 1.31
	reached  bool          // a rule outside of its own chains leads to it
	out      Service
}

func newAudit(s *ruleset.Save, opts *Options, out *Collector) *audit {
	a := &audit{opts: opts, out: out, save: s, nat: s.Table("nat"), filter: s.Table("filter"), mangle: s.Table("mangle"),
		chains: make([]chain, s.Chains+1), byName: map[nodeKey]*node{}, broken: map[string]bool{}}
	for _, t := range s.Tables {
		for _, c := range t.Chains {
			a.chains[c.Index].Chain = c
		}
	}
	for _, t := range s.Tables {
		for c := range a.in(t) {
			c.deep = a.isDeep(c)
			for i := 0; c.Lost > 0 && i < len(c.Rules); i++ {
				if r := &c.Rules[i]; r.Jump == 0 && strings.HasPrefix(r.Target, "KUBE-") {
					a.dangling = append(a.dangling, dangling{t, r})
				}
			}
		}
	}
	return a
}

// isDeep reports whether a chain leads to a chain that leads on.
func (a *audit) isDeep(c *chain) bool {
	if c.Only != 0 { // spares a walk through every endpoint's rules
		return a.chains[c.Only].Jumps > 0
	}
	for i := 0; c.Jumps > 0 && i < len(c.Rules); i++ {
		if to := a.to(&c.Rules[i]); to != nil && to.Jumps > 0 {
			return true
		}
	}
	return false
}

// to returns the chain that a rule leads to, nil if it is none of its table.
func (a *audit) to(r *ruleset.Rule) *chain {
	if r.Jump == 0 {
		return nil
	}
	return &a.chains[r.Jump]
}

// chain returns a chain by its name, nil if the table is nil or has no such chain.
func (a *audit) chain(t *ruleset.Table, name string) *chain {
	c := t.Chain(name)
	if c == nil {
		return nil
	}
	return &a.chains[c.Index]
}

// in returns the chains of a table, none when it is nil.
func (a *audit) in(t *ruleset.Table) iter.Seq[*chain] {
	return func(yield func(*chain) bool) {
		if t == nil || len(t.Chains) == 0 {
			return
		}
		first := int(t.Chains[0].Index)
		for i := first; i < first+len(t.Chains) && yield(&a.chains[i]); i++ {
		}
	}
}

// judge runs the invariants of what all Services share. The order is the order of causes: what an earlier step blames, later steps pass
// over. It returns false when no table is left to judge.
func (a *audit) judge() bool {
	a.version = a.inferVersion()
	if !a.judgeTables() {
		return false
	}
	a.judgeDeclarations()
	a.judgeLoops()
	a.judgeCanary()
	a.judgeRootJumps()
	a.judgeMasquerade()
	a.judgeForward()
	a.judgeFirewall()
	a.judgeHealthPorts()
	return true
}

// judgeServices runs the invariants of each Service.
func (a *audit) judgeServices() {
	a.findLeft()
	a.findServices()
	a.adoptChains()
	a.claimEndpoints()
	a.judgeEndpoints()
	for _, n := range a.nodes {
		a.judgeService(n)
	}
	a.judgeProxyFirewall()
	a.judgeStrangers()
	a.judgeUnreadable()
	a.judgeUnreferenced()
}

// about makes a finding about a rule or, when r is nil, about a chain. The finding explains what follows from c.
func (a *audit) about(name, table string, c *chain, r *ruleset.Rule, n *node, format string, args ...any) {
	f := Finding{Name: name, Family: a.save.Family, Table: table, Message: fmt.Sprintf(format, args...)}
	if c != nil {
		c.blamed = true
		f.Chain, f.Line = c.Name, int(c.Line)
		if n == nil {
			n = c.owner
		}
	}
	if r != nil {
		f.Chain, f.Line, f.Rule = a.chains[r.Chain].Name, int(r.Line), r.Text
	}
	if n != nil {
		a.broken[n.name] = true
		f.Service = n.out.Name
	}
	a.out.Add(f)
}

// isBroken reports whether a finding explains what is odd about a Service.
func (a *audit) isBroken(n *node) bool {
	for _, c := range []*chain{n.svc, n.svl, n.ext, n.fw, n.xlb} {
		if c != nil && c.blamed {
			return true
		}
	}
	return a.broken[n.name]
}

// serviceChain takes "KUBE-SVC-XXXXXXXXXXXXXXXX" apart into "SVC" and the hash.
func serviceChain(name string) (kind, hash string) {
	rest, ok := strings.CutPrefix(name, "KUBE-")
	if !ok {
		return "", ""
	}
	kind, hash, ok = strings.Cut(rest, "-")
	if !ok || len(hash) != 16 {
		return "", ""
	}
	switch kind {
	case "SVC", "SVL", "EXT", "FW", "XLB", "SEP":
		return kind, hash
	}
	return "", ""
}

// services returns the graph for the report.
func (a *audit) services() []Service {
	list := make([]Service, 0, len(a.nodes))
	slices.SortFunc(a.nodes, func(x, y *node) int { // cheaper here than when they are large
		return cmp.Or(cmp.Compare(x.name, y.name), cmp.Compare(x.proto, y.proto))
	})
	for _, n := range a.nodes {
		if !n.reached {
			continue
		}
		for _, c := range []*chain{n.fw, n.ext, n.xlb, n.svc, n.svl} {
			if c != nil {
				n.out.Chains = append(n.out.Chains, c.Name)
			}
		}
		list = append(list, n.out)
	}
	return list
}
