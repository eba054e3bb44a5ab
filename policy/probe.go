package policy

import (
	"net/netip"
	"time"
)

func (r *reader) decodeProbe(b Stanza) (Probe, bool) {
	p := Probe{Metadata: r.decodeMetadata(b), Name: b.Name}
	before := len(r.diags)
	usual := map[string]time.Duration{Bridge: time.Second, Service: 2 * time.Second}
	longest := 30 * time.Second
	if b.Name == Service {
		longest = 4 * time.Second // twice in each round of watch
	}
	p.Timeout = r.duration(b.Get("timeout"), "timeout", usual[b.Name], 10*time.Millisecond, longest)
	switch {
	case usual[b.Name] == 0:
		r.errorf(b.Range, "Unknown probe", "The probes are \"bridge\" and \"service\"; there is no probe %q.%s",
			b.Name, DidYouMean(b.Name, []string{Bridge, Service}))
	case b.Name == Service:
		r.decodeService(b, &p)
	case b.Get("address") != nil || b.Get("protocol") != nil:
		r.errorf(b.Range, "No Service", "Probe %s has no address and no protocol; remove them, or write: probe \"service\".", b.Name)
	}
	return p, len(r.diags) == before
}

func (r *reader) decodeService(b Stanza, p *Probe) {
	p.Protocol = r.oneOf(b.Get("protocol"), "protocol", "tcp", "dns")
	p.Address = r.text(b.Get("address"), "address")
	if at, err := netip.ParseAddrPort(p.Address); err != nil || at.Port() == 0 || at.Addr().Zone() != "" {
		r.errorf(b.At("address"), "Wrong address", "A probe of a Service needs its address and port, not %q. Write, for cluster DNS: "+
			"address = \"10.96.0.10:53\", with protocol = \"dns\".", p.Address)
	}
}
