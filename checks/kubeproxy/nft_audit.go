package kubeproxy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// nftAudit judges one table kube-proxy.
type nftAudit struct {
	t       *nftTable
	out     *collector
	version VersionRange
	hash    hasher
	nodes   []*nftNode
	byName  map[nodeKey]*nftNode

	detector string // which ClusterIP traffic is masqueraded
	mark     uint64

	mapDamaged bool // what it led to is not reported too
}

// nftNode is one Service port with its chains.
type nftNode struct {
	nodeKey
	base                           string // ns/name/proto/port
	service, local, external, fire *nftChain
	broken, reached                bool
	out                            Service
}

func newNFTAudit(t *nftTable, out *collector) *nftAudit {
	for _, c := range t.order {
		c.refs, c.blamed, c.owner = 0, false, nil
	}
	return &nftAudit{t: t, out: out, byName: map[nodeKey]*nftNode{}}
}

// judge runs every invariant of nftables mode, causes before symptoms.
func (a *nftAudit) judge() {
	a.version = a.inferVersion()
	a.judgeContainers()
	a.judgeNames()
	a.judgeTargets()
	a.judgeBaseChains()
	a.judgeLookups()
	a.judgeMasquerade()
	a.judgeMaps()
	a.findDetector()
	for _, n := range a.nodes {
		a.judgeService(n)
	}
	a.judgeClusterIPs()
	a.judgeHairpinSet()
	a.judgeUnreferenced()
}

func (a *nftAudit) about(name string, c *nftChain, r *nftRule, n *nftNode, format string, args ...any) {
	f := Finding{Name: name, Family: a.t.family, Table: nftTableName, Message: fmt.Sprintf(format, args...)}
	if c != nil {
		c.blamed = true
		f.Chain, f.Line, f.Handle = c.name, c.line, c.handle
		if n == nil {
			n = c.owner
		}
	}
	if r != nil {
		f.Line, f.Handle, f.Rule = r.line, r.handle, r.text
	}
	if n != nil {
		n.broken = true
		f.Service = n.name
	}
	a.out.add(f)
}

// aboutSet makes a finding about a set or map.
func (a *nftAudit) aboutSet(name, set, rule string, n *nftNode, format string, args ...any) {
	f := Finding{Name: name, Family: a.t.family, Table: nftTableName, Chain: set, Rule: rule, Message: fmt.Sprintf(format, args...)}
	if s := a.t.sets[set]; s != nil {
		f.Line, f.Handle = s.line, s.handle
	}
	if n != nil {
		n.broken = true
		f.Service = n.name
	}
	a.out.add(f)
}

// nftKind takes "service-2QRHZV4L-default/kubernetes/tcp/https" apart.
func nftKind(chain string) (kind, hash, base string) {
	for _, kind := range []string{"service", "local", "external", "firewall", "endpoint"} {
		rest, ok := strings.CutPrefix(chain, kind+"-")
		if ok && len(rest) > 9 && rest[8] == '-' && strings.Contains(rest, "/") {
			return kind, rest[:8], rest[9:]
		}
	}
	return "", "", ""
}

// node returns the Service of a chain's name, nil if the chain is none of a Service.
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
	return a.named(servicePort(parts[0], parts[1], parts[3]), parts[2], base)
}

func (a *nftAudit) named(name, proto, base string) *nftNode {
	k := nodeKey{name, proto}
	if n := a.byName[k]; n != nil {
		return n
	}
	n := &nftNode{nodeKey: k, base: base, out: Service{Name: name, Protocol: proto, Family: a.t.family}}
	a.byName[k] = n
	a.nodes = append(a.nodes, n)
	return n
}

// judgeNames: every chain of a Service or endpoint carries the hash of the rest of its name.
func (a *nftAudit) judgeNames() {
	for _, c := range a.t.order {
		kind, hash, base := nftKind(c.name)
		if kind == "" {
			continue
		}
		n := a.node(c.name)
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
		if strings.HasSuffix(base, "...") || string(a.hash.sum16(base)[:8]) == hash {
			continue
		}
		name := "kubeproxy.service.hash"
		if kind == "endpoint" {
			name = "kubeproxy.endpoint.hash"
		}
		a.about(name, c, nil, n, "%s hashes to %s, the chain has %s", base, a.hash.sum16(base)[:8], hash)
	}
}

// judgeTargets: every chain and set that is used exists. It counts what leads to a chain.
func (a *nftAudit) judgeTargets() {
	reported := map[string]bool{}
	check := func(target string, c *nftChain, r *nftRule, from string) {
		if target == "" || strings.Contains(target, ":") { // an address, from 1.36
			return
		}
		if to := a.t.chains[target]; to != nil {
			to.refs++
			return
		}
		if !reported[target] {
			reported[target] = true
			if c != nil {
				a.about("kubeproxy.chain.undeclared", c, r, nil, "%s leads to %s, which the table does not have", from, target)
			} else {
				a.mapDamaged = true
				a.aboutSet("kubeproxy.chain.undeclared", from, "", a.node(target), "%s leads to %s, which the table does not have", from, target)
			}
		} else if c != nil {
			c.blamed = true
		}
	}
	for _, c := range a.t.order {
		for _, r := range c.rules {
			check(r.target, c, r, c.name)
			for _, e := range r.entries {
				check(e.target, c, r, c.name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.t.sets)) {
		for _, e := range a.t.sets[name].elements {
			check(e.target, nil, nil, name)
		}
	}
}

// judgeUnreferenced: kube-proxy flushes a chain at once when it is out of use and deletes it later, so only chains with rules count.
func (a *nftAudit) judgeUnreferenced() {
	if a.mapDamaged {
		return
	}
	for _, c := range a.t.order {
		if c.owner == nil || c.owner.broken || c.blamed || c.refs > 0 || len(c.rules) == 0 {
			continue
		}
		a.about("kubeproxy.chain.unreferenced", c, nil, nil, "nothing leads to %s", c.name)
	}
}

// services returns the graph for the report.
func (a *nftAudit) services() []Service {
	list := make([]Service, 0, len(a.nodes))
	for _, n := range a.nodes {
		if !n.reached {
			continue
		}
		n.out.Chains = nil
		for _, c := range []*nftChain{n.fire, n.external, n.service, n.local} {
			if c != nil {
				n.out.Chains = append(n.out.Chains, c.name)
			}
		}
		list = append(list, n.out)
	}
	return list
}
