package proxy

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"nodegate/internal/ruleset"
)

// audit judges one save. The rules are shared and must not change, so everything that the audit finds out about a chain is in chains.
type audit struct {
	opts    *Options
	out     *Collector
	save    *ruleset.Save
	nat     *ruleset.Table // nil if missing or flushed; so are the next two
	filter  *ruleset.Table
	mangle  *ruleset.Table
	chains  []chain // by Index; index 0 is unused
	version VersionRange
	hash    hasher

	nodes        []*node
	byName       map[nodeKey]*node
	broken       map[string]bool // Services with a finding, by name: a damaged rule may have lost its protocol
	detector     string          // the traffic that most Services masquerade: "all", "not from 100.96.0.0/11"; empty for none
	portalsEmpty bool
	nodePorts    bool                         // node ports are served at some address
	portsDamaged bool                         // a rule of KUBE-NODEPORTS was changed
	large        bool                         // large-cluster mode: dispatch rules have no comments, unused chains stay for a time
	mark         uint64                       // the bit that KUBE-MARK-MASQ sets
	kinds        map[string]map[string]*chain // Service chains by kind and hash
	healthPorts  map[string]int               // health check node ports that table filter accepts, by Service port
	drops        map[portalKey]bool           // what KUBE-PROXY-FIREWALL drops
	rivals       []claim                      // additional claims to an endpoint that already has one
	strangers    []claim                      // claims to endpoints that seem to belong to another Service
	unreadable   int
	firstUnread  *ruleset.Rule

	stamp   int32
	targets []*ruleset.Rule // scratch space of judgeDispatch
	recents []*ruleset.Rule
}

// chain is the audit's state of a chain.
type chain struct {
	*ruleset.Chain
	stamp  int32 // number of the last dispatch that led here
	deep   bool  // leads to a chain that itself leads to other chains
	blamed bool  // a finding explains this chain; its symptoms are not reported
	left   bool  // unused, but not yet deleted
	state  uint8 // used by judgeLoops
	owner  *node // the Service that owns the chain, once known

	// Fields for the chain of an endpoint:
	claim     claim         // the first dispatch that leads to it
	translate *ruleset.Rule // its DNAT rule
	address   string        // destination of the DNAT rule
}

type nodeKey struct{ name, proto string }

// node is one Service port with its chains.
type node struct {
	nodeKey
	svc, svl, ext, fw, xlb *chain

	cluster  *ruleset.Rule // rule for the ClusterIP in nat KUBE-SERVICES
	nodePort *ruleset.Rule // rule for every address in nat KUBE-NODEPORTS
	loopback *ruleset.Rule // rule for 127.0.0.0/8 alone in nat KUBE-NODEPORTS, from 1.31
	reached  bool          // a rule outside of its own chains leads to it
	out      Service

	outside     []*ruleset.Rule // rules of nat KUBE-SERVICES for its external addresses
	blocked     []*ruleset.Rule // rules of filter KUBE-EXTERNAL-SERVICES for its external addresses
	blockedPort *ruleset.Rule   // rule of filter KUBE-EXTERNAL-SERVICES for its node port
}

func newAudit(s *ruleset.Save, opts *Options, out *Collector) *audit {
	a := &audit{opts: opts, out: out, save: s, nat: s.Table("nat"), filter: s.Table("filter"), mangle: s.Table("mangle"),
		chains: make([]chain, s.Chains+1), byName: map[nodeKey]*node{}, broken: map[string]bool{}, healthPorts: map[string]int{}}
	for _, t := range s.Tables {
		for _, c := range t.Chains {
			a.chains[c.Index].Chain = c
		}
	}
	for _, t := range s.Tables {
		for c := range a.chainsOf(t) {
			c.deep = a.isDeep(c)
		}
	}
	return a
}

// isDeep reports whether a chain leads to a chain that itself leads to other chains.
func (a *audit) isDeep(c *chain) bool {
	if c.Only != 0 { // saves a walk through the rules of every endpoint
		return a.chains[c.Only].Jumps > 0
	}
	for i := 0; c.Jumps > 0 && i < len(c.Rules); i++ {
		if to := a.target(&c.Rules[i]); to != nil && to.Jumps > 0 {
			return true
		}
	}
	return false
}

// target returns the chain to which a rule leads, or nil if its table lacks the chain.
func (a *audit) target(r *ruleset.Rule) *chain {
	if r.Jump == 0 {
		return nil
	}
	return &a.chains[r.Jump]
}

// chain returns the chain of that name, or nil if the table is nil or lacks it.
func (a *audit) chain(t *ruleset.Table, name string) *chain {
	c := t.Chain(name)
	if c == nil {
		return nil
	}
	return &a.chains[c.Index]
}

// chainsOf yields the chains of a table, nothing if it is nil.
func (a *audit) chainsOf(t *ruleset.Table) iter.Seq[*chain] {
	return func(yield func(*chain) bool) {
		if t == nil || len(t.Chains) == 0 {
			return
		}
		first := int(t.Chains[0].Index)
		for i := first; i < first+len(t.Chains) && yield(&a.chains[i]); i++ {
		}
	}
}

// judge checks the invariants that concern all Services, causes before symptoms: later steps skip
// everything that an earlier step has explained. It returns false if no table is left to judge.
func (a *audit) judge() bool {
	a.version = a.inferVersion()
	if !a.judgeTables() {
		return false
	}
	a.judgeLoops()
	a.judgeCanary()
	a.judgeRootJumps()
	a.judgeMasquerade()
	a.judgeForward()
	a.judgeFirewall()
	a.judgeHealthPorts()
	return true
}

// judgeServices checks the invariants of each Service.
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

// addFinding adds a finding about a rule or, if r is nil, about a chain. It marks c as explained, so that its symptoms are not reported.
func (a *audit) addFinding(name, table string, c *chain, r *ruleset.Rule, n *node, format string, args ...any) {
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

// isBroken reports whether a finding explains the irregularities of a Service.
func (a *audit) isBroken(n *node) bool {
	for _, c := range []*chain{n.svc, n.svl, n.ext, n.fw, n.xlb} {
		if c != nil && c.blamed {
			return true
		}
	}
	return a.broken[n.name]
}

// serviceChain splits "KUBE-SVC-XXXXXXXXXXXXXXXX" into "SVC" and the hash.
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

// services returns the Service graph for the report.
func (a *audit) services() []Service {
	list := make([]Service, 0, len(a.nodes))
	slices.SortFunc(a.nodes, func(x, y *node) int { // cheaper here than later, when the elements are large
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
		n.out.health = a.healthPorts[n.name]
		list = append(list, n.out)
	}
	return list
}
