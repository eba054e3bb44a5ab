package proxy

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"nodegate/internal/audit/expect"
	"nodegate/internal/ruleset"
)

// nftAudit judges one table kube-proxy. The rules are shared and must not change, so everything
// that the audit finds out about a chain is in chains.
type nftAudit struct {
	opts    *Options
	t       *ruleset.NFTTable
	chains  []nftChain // by Index
	out     *Collector
	version VersionRange
	nodes   []*nftNode
	byName  map[nodeKey]*nftNode

	writes     expect.NFT
	detector   string          // the ClusterIP traffic that is masqueraded
	clusterIPs map[string]bool // the elements of set cluster-ips, read on first use

	mapDamaged bool            // a map lost elements: its targets are not reported too
	hairpins   map[string]bool // the set hairpin-connections: "tcp 10.0.0.1:80"; nil until 1.35
}

// nftChain is the audit's state of a chain.
type nftChain struct {
	*ruleset.NFTChain
	refs   int
	blamed bool // a finding explains this chain; its symptoms are not reported
	owner  *nftNode
}

// nftNode is one Service port with its chains.
type nftNode struct {
	nodeKey
	base                           string // ns/name/proto/port
	service, local, external, fire *nftChain
	broken, reached                bool
	out                            Service

	servedPort, blockedPort int                  // its node port in service-nodeports, in no-endpoint-nodeports
	outside                 []ruleset.NFTElement // elements for its external addresses
}

func newNFTAudit(t *ruleset.NFTTable, opts *Options, out *Collector) *nftAudit {
	a := &nftAudit{opts: opts, t: t, chains: make([]nftChain, len(t.Chains)), out: out, byName: map[nodeKey]*nftNode{}}
	for i, c := range t.Chains {
		a.chains[i].NFTChain = c
	}
	return a
}

// chain returns the chain of that name, or nil if the table lacks it.
func (a *nftAudit) chain(name string) *nftChain {
	c := a.t.Chain(name)
	if c == nil {
		return nil
	}
	return &a.chains[c.Index]
}

// all yields the chains in the order of the listing.
func (a *nftAudit) all() iter.Seq[*nftChain] {
	return func(yield func(*nftChain) bool) {
		for i := 0; i < len(a.chains) && yield(&a.chains[i]); i++ {
		}
	}
}

// marksPackets reports whether a rule marks packets for masquerading: with a jump until 1.35, itself from
// 1.36.
func marksPackets(r *ruleset.NFTRule) bool {
	return r.Target == "mark-for-masquerade" || r.MarkSet != 0
}

// judge checks the invariants that concern all Services in nftables mode, causes before symptoms.
func (a *nftAudit) judge() {
	a.version = a.inferVersion()
	a.judgeContainers()
	a.findNodes()
	a.judgeTargets()
	a.judgeFrame()
	a.judgeShared()
}

// judgeServices checks the invariants of each Service.
func (a *nftAudit) judgeServices() {
	a.judgeMaps()
	for _, n := range a.nodes {
		a.judgeService(n)
	}
	a.judgePortals()
	a.judgeDetector()
	a.judgeClusterIPs()
	a.judgeHairpinSet()
	a.judgeUnreferenced()
}

func (a *nftAudit) addFinding(name string, c *nftChain, r *ruleset.NFTRule, n *nftNode, format string, args ...any) {
	f := Finding{Name: name, Family: a.t.Family, Table: ruleset.KubeProxyTable, Message: fmt.Sprintf(format, args...)}
	if c != nil {
		c.blamed = true
		f.Means = explain(name, c.Name)
		f.Chain, f.Line, f.Handle = c.Name, c.Line, c.Handle
		if n == nil {
			n = c.owner
		}
	}
	if r != nil {
		f.Line, f.Handle, f.Rule = r.Line, r.Handle, r.Text
	}
	if n != nil {
		n.broken = true
		f.Service = n.name
	}
	a.out.Add(f)
}

// addSetFinding adds a finding about a set or map.
func (a *nftAudit) addSetFinding(name, set, rule string, n *nftNode, format string, args ...any) {
	f := Finding{Name: name, Family: a.t.Family, Table: ruleset.KubeProxyTable, Chain: set, Rule: rule, Message: fmt.Sprintf(format, args...),
		Means: explain(name, set)}
	if s := a.t.Sets[set]; s != nil {
		f.Line, f.Handle = s.Line, s.Handle
	}
	if n != nil {
		n.broken = true
		f.Service = n.name
	}
	a.out.Add(f)
}

// nftKind splits "service-2QRHZV4L-default/kubernetes/tcp/https" into its parts.
func nftKind(chain string) (kind, hash, base string) {
	for _, kind := range []string{"service", "local", "external", "firewall", "endpoint"} {
		rest, ok := strings.CutPrefix(chain, kind+"-")
		if ok && len(rest) > 9 && rest[8] == '-' && strings.Contains(rest, "/") {
			return kind, rest[:8], rest[9:]
		}
	}
	return "", "", ""
}

// node returns the Service of a chain's name, or nil if the chain does not belong to a Service.
func (a *nftAudit) node(chain string) *nftNode {
	kind, _, base := nftKind(chain)
	if kind == "" {
		return nil
	}
	base, _, _ = strings.Cut(base, "__")
	parts := strings.Split(base, "/")
	if len(parts) != 4 {
		return nil
	}
	return a.findNode(formatServicePort(parts[0], parts[1], parts[3]), parts[2], base)
}

func (a *nftAudit) findNode(name, proto, base string) *nftNode {
	k := nodeKey{name, proto}
	if n := a.byName[k]; n != nil {
		return n
	}
	n := &nftNode{nodeKey: k, base: base, out: Service{Name: name, Protocol: proto, Family: a.t.Family}}
	a.byName[k] = n
	a.nodes = append(a.nodes, n)
	return n
}

// findNodes finds the Services of the chains.
func (a *nftAudit) findNodes() {
	for c := range a.all() {
		kind, _, _ := nftKind(c.Name)
		if kind == "" {
			continue
		}
		n := a.node(c.Name)
		if n == nil {
			continue
		}
		c.owner = n
		switch kind {
		case "service":
			n.service = c
		case "local":
			n.local = c
		case "external":
			n.external = c
		case "firewall":
			n.fire = c
		}
	}
}

// judgeTargets checks that every chain and set in use exists, and counts the references to each chain.
func (a *nftAudit) judgeTargets() {
	reported := map[string]bool{}
	check := func(target string, c *nftChain, r *ruleset.NFTRule, from string) {
		if target == "" || strings.Contains(target, ":") { // an address, from 1.36
			return
		}
		if to := a.chain(target); to != nil {
			to.refs++
			return
		}
		if !reported[target] {
			reported[target] = true
			if c != nil {
				a.addFinding(damaged, c, r, nil, "%s jumps to %s, which is missing from the table", from, target)
			} else {
				a.mapDamaged = true
				a.addSetFinding(damaged, from, "", a.node(target), "%s uses %s, which is missing from the table", from, target)
			}
		} else if c != nil {
			c.blamed = true
		}
	}
	for c := range a.all() {
		for _, r := range c.Rules {
			check(r.Target, c, r, c.Name)
			for _, e := range r.Entries {
				check(e.Target, c, r, c.Name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.t.Sets)) {
		for _, e := range a.t.Sets[name].Elements {
			check(e.Target, nil, nil, name)
		}
	}
}

// judgeUnreferenced reports unused chains. kube-proxy flushes an unused chain at once and deletes
// it later, so only chains with rules count.
func (a *nftAudit) judgeUnreferenced() {
	if a.mapDamaged {
		return
	}
	for c := range a.all() {
		if c.owner == nil || c.owner.broken || c.blamed || c.refs > 0 || len(c.Rules) == 0 {
			continue
		}
		if c == c.owner.external && a.opts.unled() {
			continue
		}
		a.addFinding("kubeproxy.chain.unreferenced", c, nil, nil, "no rule jumps to %s", c.Name)
	}
}

// services returns the Service graph for the report.
func (a *nftAudit) services() []Service {
	list := make([]Service, 0, len(a.nodes))
	for _, n := range a.nodes {
		if !n.reached {
			continue
		}
		n.out.Chains = nil
		for _, c := range []*nftChain{n.fire, n.external, n.service, n.local} {
			if c != nil {
				n.out.Chains = append(n.out.Chains, c.Name)
			}
		}
		list = append(list, n.out)
	}
	return list
}

type nodeKey struct{ name, proto string }
