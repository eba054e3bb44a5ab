package kubeproxy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// audit judges one save.
type audit struct {
	opts    *Options
	out     *collector
	save    *save
	nat     *table
	filter  *table
	mangle  *table
	version VersionRange
	hash    hasher

	nodes        []*node
	byName       map[nodeKey]*node
	broken       map[string]bool // Services with a finding, by name: a damaged rule may have lost its protocol
	detector     string          // what most Services masquerade: "all", "not from 100.96.0.0/11"; empty: nothing
	portalsEmpty bool
	portsDamaged bool                         // a rule of KUBE-NODEPORTS is no longer what it was
	large        bool                         // large-cluster mode: no comments on dispatch, stale chains stay for an hour
	mark         uint64                       // the bit that KUBE-MARK-MASQ sets
	dangling     []dangling                   // rules whose target is no chain of the table
	kinds        map[string]map[string]*chain // Service chains by kind and hash
	drops        map[string]bool              // by comment: what KUBE-PROXY-FIREWALL drops
	rivals       []claim                      // second and further claims to an endpoint
	strangers    []claim                      // to an endpoint of another Service, it seems
	unreadable   int
	firstUnread  *rule

	stamp   int32
	targets []*rule // scratch of judgeDispatch
	recents []*rule
}

// dangling is a rule that leads to no chain: undeclared, or a target of somebody else's.
type dangling struct {
	t *table
	r *rule
}

type nodeKey struct{ name, proto string }

// node is one Service port with its chains.
type node struct {
	nodeKey
	svc, svl, ext, fw, xlb *chain

	cluster  *rule // nat KUBE-SERVICES rule of the ClusterIP
	nodePort *rule // nat KUBE-NODEPORTS rule for every address
	loopback *rule // nat KUBE-NODEPORTS rule for 127.0.0.0/8 alone, from 1.31
	reached  bool  // a rule outside of its own chains leads to it
	out      Service
}

func newAudit(s *save, opts *Options, out *collector) *audit {
	return &audit{opts: opts, out: out, save: s, nat: s.table("nat"), filter: s.table("filter"), mangle: s.table("mangle"),
		byName: map[nodeKey]*node{}, broken: map[string]bool{}}
}

// judge runs every invariant. The order is the order of causes: what an earlier step blames, later steps pass over.
func (a *audit) judge() {
	a.link()
	a.version = a.inferVersion()
	if !a.judgeTables() {
		return
	}
	a.judgeDeclarations()
	a.judgeLoops()
	a.judgeCanary()
	a.judgeRootJumps()
	a.judgeMasquerade()
	a.judgeForward()
	a.judgeFirewall()
	a.judgeHealthPorts()
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

// about makes a finding about a rule or, when r is nil, about a chain.
func (a *audit) about(name, table string, c *chain, r *rule, n *node, format string, args ...any) {
	f := Finding{Name: name, Family: a.save.family, Table: table, Message: fmt.Sprintf(format, args...)}
	if c != nil {
		c.blamed = true
		f.Chain, f.Line = c.name, int(c.line)
		if n == nil {
			n = c.owner
		}
	}
	if r != nil {
		f.Line, f.Rule = int(r.line), r.text
	}
	if n != nil {
		a.broken[n.name] = true
		f.Service = n.out.Name
	}
	a.out.add(f)
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

// link resolves what every rule jumps to and counts the references. It forgets what an earlier audit left in the chains.
func (a *audit) link() {
	for _, t := range a.save.tables {
		for _, c := range t.order {
			c.refs, c.jumps, c.stamp, c.state, c.blamed, c.deep = 0, 0, 0, 0, false, false
			c.only, c.owner, c.claim, c.translate, c.address = nil, nil, claim{}, nil, ""
		}
		var lastName string
		var last *chain
		for _, c := range t.order {
			for r := c.first; r != nil; r = r.next {
				switch r.target {
				case "", "ACCEPT", "DROP", "RETURN", "REJECT", "DNAT", "SNAT", "MASQUERADE", "MARK", "LOG":
					continue
				}
				if r.target != lastName {
					lastName, last = r.target, t.chains[r.target]
				}
				if r.jump = last; last == nil {
					a.dangling = append(a.dangling, dangling{t, r})
					continue
				}
				if last.refs++; c.jumps == 0 {
					c.only = last
				} else if c.only != last {
					c.only = nil
				}
				c.jumps++
			}
		}
		for _, c := range t.order {
			if c.only != nil { // spares a walk through every endpoint's rules
				c.deep = c.only.jumps > 0
				continue
			}
			for r := c.first; r != nil && c.jumps > 0 && !c.deep; r = r.next {
				c.deep = r.jump != nil && r.jump.jumps > 0
			}
		}
	}
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
				n.out.Chains = append(n.out.Chains, c.name)
			}
		}
		list = append(list, n.out)
	}
	return list
}
