package proxy

import "net/netip"

// serviceRange returns the smallest range with the ClusterIP of every Service in use.
func (r *reach) serviceRange() (all netip.Prefix) {
	for i := range r.rep.Services {
		s := &r.rep.Services[i]
		ip, err := netip.ParseAddr(s.ClusterIP)
		if s.Family != r.family || err != nil || familyOf(ip) != r.family || len(s.Endpoints) == 0 {
			continue
		}
		if !all.IsValid() {
			all = netip.PrefixFrom(ip, ip.BitLen())
		}
		for all.Bits() > 0 && !all.Contains(ip) { // a damaged address may have a zone
			all = netip.PrefixFrom(all.Addr(), all.Bits()-1)
		}
	}
	return all.Masked()
}
