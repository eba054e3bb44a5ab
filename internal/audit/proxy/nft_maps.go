package proxy

import (
	"net"
	"strings"

	"nodegate/internal/ruleset"
)

// judgeMaps reads the target of each address and port. Services are reachable only through these maps.
func (a *nftAudit) judgeMaps() {
	dispatched := map[string]string{}
	if s := a.t.Sets["service-ips"]; s != nil {
		a.judgeNoPortals(s)
		for _, e := range s.Elements {
			a.judgeServiceIP(e, dispatched)
		}
	}
	if s := a.t.Sets["service-nodeports"]; s != nil {
		for _, e := range s.Elements {
			if a.targetMissing(e) {
				continue
			}
			n := a.node(e.Target)
			kind, _, _ := nftKind(e.Target)
			if n != nil && len(e.Key) == 2 {
				n.reached, n.servedPort = true, atoi(e.Key[1])
				n.out.NodePort = n.servedPort
			}
			if n == nil || len(e.Key) != 2 || kind != "external" || e.Key[0] != n.proto {
				a.addSetFinding(damaged, s.Name, e.String(), n, "node port %s leads to %s", e, e.Target)
			}
		}
	}
	if s := a.t.Sets["no-endpoint-services"]; s != nil {
		for _, e := range s.Elements {
			a.judgeBlocked(s, e, dispatched)
		}
	}
	if s := a.t.Sets["no-endpoint-nodeports"]; s != nil {
		for _, e := range s.Elements {
			if n := a.commented(e); n != nil && len(e.Key) == 2 {
				n.blockedPort = atoi(e.Key[1])
				n.out.NodePort = n.blockedPort
			}
		}
	}
	a.judgeFirewallIPs(dispatched)
}

// judgeNoPortals reports an empty map although Services have rules: it was flushed, or the listing omits elements (nft -t).
func (a *nftAudit) judgeNoPortals(s *ruleset.NFTSet) {
	if len(s.Elements) > 0 {
		return
	}
	for c := range a.all() {
		if c.owner != nil && len(c.Rules) > 0 {
			a.mapDamaged = true
			a.addSetFinding(damaged, s.Name, "", nil,
				"map %s is empty: no Service address is handled (or the listing was made with nft -t, which omits elements)", s.Name)
			return
		}
	}
}

// targetMissing reports whether the target chain of an element is missing, which is reported as undeclared.
func (a *nftAudit) targetMissing(e ruleset.NFTElement) bool {
	return e.Target != "" && a.chain(e.Target) == nil
}

func (a *nftAudit) judgeServiceIP(e ruleset.NFTElement, dispatched map[string]string) {
	const set = "service-ips"
	if a.targetMissing(e) {
		return
	}
	n := a.node(e.Target)
	if n == nil || len(e.Key) != 3 {
		a.addSetFinding(damaged, set, e.String(), nil, "the target of element %s is not a chain of a Service", e)
		return
	}
	n.reached = true
	dispatched[e.String()] = e.Target
	kind, _, _ := nftKind(e.Target)
	inside := kind == "service" || kind == "local"
	switch {
	case e.Key[1] != n.proto, kind != "external" && !inside:
		a.addSetFinding(damaged, set, e.String(), n, "%s traffic leads to %s", e.Key[1], e.Target)
	case inside && n.out.ClusterIP != "":
		a.addSetFinding(damaged, set, e.String(), n,
			"%s has two ClusterIP addresses: %s:%d and %s:%s", n.name, n.out.ClusterIP, n.out.Port, e.Key[0], e.Key[2])
	case inside:
		n.out.ClusterIP, n.out.Port = e.Key[0], atoi(e.Key[2])
		n.out.InternalLocal = kind == "local"
	default:
		n.out.ExternalIPs = appendNew(n.out.ExternalIPs, e.Key[0])
		n.outside = append(n.outside, e)
	}
}

// longestComment is the maximum length of an nftables comment in bytes. kube-proxy truncates names
// to it (truncateNFTablesComment of pkg/proxy/nftables/proxier.go). Names have up to 143 bytes.
const longestComment = 128

// commented returns the Service in an element's comment, which is the only trace of a Service
// without endpoints. It returns nil if the name may be truncated.
func (a *nftAudit) commented(e ruleset.NFTElement) *nftNode {
	if !strings.Contains(e.Comment, "/") || len(e.Key) < 2 || len(e.Comment) >= longestComment {
		return nil
	}
	proto := e.Key[len(e.Key)-2]
	ns, name, port := SplitServicePort(e.Comment)
	n := a.findNode(formatServicePort(ns, name, port), proto, ns+"/"+name+"/"+proto+"/"+port)
	n.reached = true
	return n
}

func (a *nftAudit) judgeBlocked(s *ruleset.NFTSet, e ruleset.NFTElement, dispatched map[string]string) {
	n := a.commented(e)
	if n == nil || len(e.Key) != 3 || a.targetMissing(e) {
		return
	}
	kind, _, _ := nftKind(dispatched[e.String()])
	switch {
	case e.Target != "reject-chain" && e.Verdict != "drop" && e.Verdict != "reject":
		a.addSetFinding("kubeproxy.service.reject", s.Name, e.String(), n,
			"%s must be rejected or dropped, not %s%s", n.name, e.Verdict, e.Target)
	case kind == "external" && a.node(dispatched[e.String()]) != n: // another Service with endpoints uses the address too
		n.out.ExternalIPs = appendNew(n.out.ExternalIPs, e.Key[0])
	case kind == "service" || kind == "local" || kind == "external" && e.Verdict != "drop":
		a.addSetFinding(damaged, s.Name, e.String(), n,
			"%s is blocked here, but sent to %s", n.name, dispatched[e.String()])
	case kind == "external":
		n.out.ExternalLocal = true
	case a.isClusterIP(e.Key[0]):
		n.out.ClusterIP, n.out.Port = e.Key[0], atoi(e.Key[2])
		n.out.Blocked = "reject"
		if e.Verdict == "drop" {
			n.out.Blocked, n.out.InternalLocal = "drop", true
		}
	default:
		n.out.ExternalIPs = appendNew(n.out.ExternalIPs, e.Key[0])
		n.outside = append(n.outside, e)
	}
}

func (a *nftAudit) isClusterIP(ip string) bool {
	s := a.t.Sets["cluster-ips"]
	if s == nil {
		return true // no set until 1.29
	}
	if a.clusterIPs == nil {
		a.clusterIPs = make(map[string]bool, len(s.Elements))
		for _, e := range s.Elements {
			if len(e.Key) == 1 {
				a.clusterIPs[e.Key[0]] = true
			}
		}
	}
	return a.clusterIPs[ip]
}

// judgeFirewallIPs judges loadBalancerSourceRanges: a map element, and a chain that drops other sources.
//
// Each of these addresses is also in service-ips or, without endpoints, in no-endpoint-services (syncProxyRules of pkg/proxy/nftables).
func (a *nftAudit) judgeFirewallIPs(dispatched map[string]string) {
	blocked := a.blocked()
	if s := a.t.Sets["firewall-ips"]; s != nil {
		for _, e := range s.Elements {
			n := a.node(e.Target)
			kind, _, _ := nftKind(e.Target)
			if n == nil || kind != "firewall" {
				a.addSetFinding(damaged, s.Name, e.String(), n, "the target of element %s is %s, which is not a chain of source ranges", e, e.Target)
			} else if len(e.Key) == 3 && (dispatched[e.String()] != "" || blocked[e.String()]) {
				n.out.LoadBalancerIPs = appendNew(n.out.LoadBalancerIPs, e.Key[0])
			} else if !n.broken && !a.mapDamaged {
				a.addSetFinding(damaged, "service-ips", "", n,
					"%s is in @firewall-ips, but neither in @service-ips nor in @no-endpoint-services: connections to this address "+
						"of the load balancer reach no endpoint", e)
			}
		}
	}
	for _, n := range a.nodes {
		c := n.fire
		if c == nil || c.blamed || n.broken || c.refs == 0 && len(c.Rules) == 0 {
			continue
		}
		if c.refs == 0 {
			a.addFinding(damaged, c, nil, n, "no element of @firewall-ips has the target %s: loadBalancerSourceRanges is not enforced", c.Name)
			continue
		}
		only := ruleset.NFTRule{Source: "...", NotSource: true, Verdict: "drop"}
		if len(c.Rules) > 0 && c.Rules[0].Source != "" {
			only.Source = c.Rules[0].Source
			if n.out.SourceRanges = c.Rules[0].Sources; n.out.SourceRanges == nil {
				n.out.SourceRanges = []string{only.Source}
			}
		}
		a.compare(n, c, []ruleset.NFTRule{only}, 0)
	}
}

// judgeClusterIPs checks that the set contains exactly the ClusterIPs of all Services (from 1.30).
func (a *nftAudit) judgeClusterIPs() {
	const set = "cluster-ips"
	s := a.t.Sets[set]
	if s == nil || a.mapDamaged {
		return
	}
	used, missing := map[string]bool{}, map[string]*nftNode{}
	if blocked := a.t.Sets["no-endpoint-services"]; blocked != nil {
		for _, e := range blocked.Elements {
			if len(e.Key) == 3 && len(e.Comment) >= longestComment {
				used[e.Key[0]] = true // of a Service whose name is not known
			}
		}
	}
	for _, n := range a.nodes {
		if n.broken { // its address may be lost too
			return
		}
		used[n.out.ClusterIP], missing[n.out.ClusterIP] = true, n
	}
	delete(missing, "")
	for _, e := range s.Elements {
		if delete(missing, e.String()); !used[e.String()] {
			a.addSetFinding(damaged, set, e.String(), nil, "%s is in @cluster-ips, but no Service uses it", e)
			return
		}
	}
	for _, n := range a.nodes { // a ClusterIP may serve several ports: one of them is in missing
		if missing[n.out.ClusterIP] == n {
			a.addSetFinding(damaged, set, "", n, "%s is not in @cluster-ips", n.out.ClusterIP)
			return
		}
	}
}

// judgeHairpinSet checks the set of hairpin connections (from 1.36). Its elements are endpoints of this node: source and destination are
// equal, and a rule dispatches to the address. After a rollback, an older version leaves the set as it was and does not use it.
func (a *nftAudit) judgeHairpinSet() {
	const set = "hairpin-connections"
	s := a.t.Sets[set]
	if s == nil || a.version.Min < 36 {
		return
	}
	a.hairpins = make(map[string]bool, len(s.Elements))
	for _, e := range s.Elements {
		if len(e.Key) == 4 {
			a.hairpins[e.Key[2]+" "+net.JoinHostPort(e.Key[0], e.Key[3])] = true
		}
	}
	known := map[string]bool{}
	for _, n := range a.nodes {
		if n.broken {
			return
		}
		for _, list := range [][]Endpoint{n.out.Endpoints, n.out.LocalEndpoints} {
			for _, e := range list {
				known[e.Address+" "+n.proto] = true
			}
		}
	}
	for _, e := range s.Elements {
		if len(e.Key) != 4 || e.Key[0] != e.Key[1] || !known[net.JoinHostPort(e.Key[0], e.Key[3])+" "+e.Key[2]] {
			a.addSetFinding(damaged, set, e.String(), nil, "%s is not a connection of an endpoint to itself", e)
			return
		}
	}
}
