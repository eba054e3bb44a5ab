package proxy

// judgePortals reports Services that have another port at an external address, and Services whose ClusterIP is in no map. From 1.30 each
// Service has it in service-ips or, without endpoints, in no-endpoint-services, whose comment may be too short for the name.
func (a *nftAudit) judgePortals() {
	if a.version.Min < 30 || a.mapDamaged {
		return
	}
	for _, n := range a.nodes {
		for _, e := range n.outside {
			if !n.broken && n.out.Port != 0 && atoi(e.Key[2]) != n.out.Port {
				a.addSetFinding(damaged, "service-ips", e.String(), n,
					"the port of %s is %d at its ClusterIP, but %s here", n.name, n.out.Port, e.Key[2])
			}
		}
		if n.out.ClusterIP != "" || n.broken || len(n.name) >= longestComment {
			continue
		}
		var chains []*nftChain
		for _, c := range []*nftChain{n.service, n.local, n.external} {
			if c != nil && len(c.Rules) > 0 {
				chains = append(chains, c)
			}
		}
		if len(chains) > 0 || n.reached {
			a.addSetFinding(damaged, "service-ips", "", n,
				"%s has rules, but @service-ips and @no-endpoint-services lack its ClusterIP", n.name)
		}
		for _, c := range chains {
			c.blamed = true
		}
	}
}

// judgeDetector reports, from 1.36, that chain services masquerades nothing although another rule identifies Pods, so
// that kube-proxy knows which traffic is off-cluster.
func (a *nftAudit) judgeDetector() {
	if c := a.chain("services"); a.writes.Inline && a.detector == "" && a.writes.Pods != nil && c != nil && !c.blamed {
		a.addFinding(damaged, c, nil, nil,
			"services does not mark packets to @cluster-ips from outside the cluster, although other rules identify Pods")
	}
}

// judgeNoLocal judges the node port of a Service with externalTrafficPolicy Local and without endpoints on this node: it
// is in two maps (syncProxyRules of pkg/proxy/nftables, from 1.30).
func (a *nftAudit) judgeNoLocal(n *nftNode) {
	switch {
	case !n.out.ExternalLocal || a.version.Min < 30 || n.broken || len(n.name) >= longestComment:
	case n.servedPort != 0 && n.blockedPort == 0:
		a.addSetFinding("kubeproxy.service.reject", "no-endpoint-nodeports", "", n,
			"node port %d of %s, which has no endpoint on this node, is not in @no-endpoint-nodeports", n.servedPort, n.name)
	case n.servedPort != n.blockedPort:
		a.addSetFinding(damaged, "service-nodeports", "", n,
			"node port %d of %s is not in @service-nodeports: Pods and the node itself cannot use it", n.blockedPort, n.name)
	}
}

// blocked returns the addresses of no-endpoint-services.
func (a *nftAudit) blocked() map[string]bool {
	all := map[string]bool{}
	if s := a.t.Sets["no-endpoint-services"]; s != nil {
		for _, e := range s.Elements {
			all[e.String()] = true
		}
	}
	return all
}
