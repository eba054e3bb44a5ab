package proxyrules

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"nodegate/internal/way"
)

// judgePorts judges the packets of Pods to the ports of endpoints: a rule may drop the packets to some Services
// only. A rule for one address is for one Pod, and no fault of a Service.
func (r *reach) judgePorts() {
	if !r.pods.IsValid() {
		return
	}
	type lost struct {
		loss way.Loss
		is   bool
	}
	for _, from := range r.senders() {
		walked := map[way.Class]lost{}
		for i := range r.rep.Services {
			s := &r.rep.Services[i]
			if s.Family != r.family || len(s.Endpoints) == 0 || from.packet.Own {
				continue
			}
			address := s.Endpoints[0].Address // the others have the same port, or its name
			port, err := strconv.ParseUint(address[strings.LastIndexByte(address, ':')+1:], 10, 16)
			if err != nil {
				continue
			}
			class := r.classes().Of(netip.Addr{}, s.Protocol, uint16(port))
			l, known := walked[class]
			if !known {
				p := from.packet
				p.Protocol, p.Port = s.Protocol, uint16(port)
				l.loss, l.is = r.rules.ToPort(p, r.pods)
				walked[class] = l
			}
			who, is := r.loses(&from, &l.loss)
			if t := r.found[stepKey(l.loss.Step)]; !l.is || !is || t != nil && len(t.services) == 0 {
				continue // or all Services lose them
			}
			if t := r.add(l.loss.Step, l.loss.Way, who); !slices.Contains(t.services, s.Name) {
				t.services = append(t.services, s.Name)
			}
		}
	}
}
