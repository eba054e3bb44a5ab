package proxy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Versions holds the API's Services and EndpointSlices, and their past states since a list. Rules that kube-proxy
// wrote in time agree with one of these states, not always with the newest.
type Versions struct {
	Endpoints *Endpoints
	Services  *Services

	pastSlices   map[string][]sliceSet // by Service, oldest first
	pastServices map[string][]*serviceObject
}

// NewVersions returns Versions without the two lists.
func NewVersions() *Versions {
	return &Versions{pastSlices: map[string][]sliceSet{}, pastServices: map[string][]*serviceObject{}}
}

// Event is one event of a watch, or a new list that replaces missed events.
type Event struct {
	deleted bool
	slice   *endpointSlice
	service *serviceObject
	relist  *Versions
}

// SliceChange parses a watch event about an EndpointSlice.
func SliceChange(object []byte, deleted bool) (Event, error) {
	c := Event{slice: &endpointSlice{}, deleted: deleted}
	return c, unmarshal(object, c.slice, "an EndpointSlice")
}

// ServiceChange parses a watch event about a Service.
func ServiceChange(object []byte, deleted bool) (Event, error) {
	c := Event{service: &serviceObject{}, deleted: deleted}
	return c, unmarshal(object, c.service, "a Service")
}

func unmarshal(object []byte, to any, what string) error {
	if err := json.Unmarshal(object, to); err != nil {
		return fmt.Errorf("reading %s: %w", what, err)
	}
	return nil
}

// Relisted returns the event for a new list.
func Relisted(now *Versions) Event { return Event{relist: now} }

// Relist returns the new list of an event, or nil for a single change.
func (c Event) Relist() *Versions { return c.relist }

// Apply adds a version with the change. It returns the changed Services as ns/name.
func (v *Versions) Apply(c Event) (about []string) {
	switch {
	case c.relist != nil:
		all := map[string]bool{}
		for _, of := range []*Versions{v, c.relist} {
			for name := range of.Endpoints.services {
				all[name] = true
			}
			for name := range of.Services.objects {
				all[name] = true
			}
		}
		about = slices.Collect(maps.Keys(all))
	case c.service != nil:
		about = []string{c.service.id()}
	default:
		for _, name := range []string{v.Endpoints.owner[c.slice.id()], c.slice.service()} {
			if name != "" && !slices.Contains(about, name) {
				about = append(about, name)
			}
		}
	}
	for _, name := range about {
		if c.slice == nil {
			v.pastServices[name] = append(v.pastServices[name], v.Services.objects[name])
		}
		if c.service == nil {
			v.pastSlices[name] = append(v.pastSlices[name], v.Endpoints.services[name])
		}
	}
	switch {
	case c.relist != nil:
		now := c.relist.Current()
		v.Endpoints, v.Services = now.Endpoints, now.Services
	case c.slice != nil:
		v.Endpoints.put(c.slice, c.deleted)
	case c.deleted:
		delete(v.Services.objects, c.service.id())
	default:
		v.Services.objects[c.service.id()] = c.service
	}
	return about
}

// services returns the past and current versions of a Service, none if v is nil. nil is a version without the Service.
func (v *Versions) services(name string) []*serviceObject {
	if v == nil {
		return nil
	}
	return append(slices.Clone(v.pastServices[name]), v.Services.objects[name])
}

// endpoints returns the past and current versions of a Service's EndpointSlices.
func (v *Versions) endpoints(name string) []sliceSet {
	return append(slices.Clone(v.pastSlices[name]), v.Endpoints.services[name])
}

// ServicePort names a port of a Service, ns/name[:port], in one address family.
type ServicePort struct{ Name, Family string }

// Service returns ns/name.
func (p ServicePort) Service() string {
	ns, name, _ := SplitServicePort(p.Name)
	return ns + "/" + name
}

// PortOf returns the Service port of a finding.
func PortOf(f *Finding) ServicePort { return ServicePort{f.Service, f.Family} }

// among returns the named port of a Service's ports.
func (p ServicePort) among(ports []apiServicePort) []apiServicePort {
	return slices.DeleteFunc(slices.Clone(ports), func(of apiServicePort) bool { return of.Name != p.Name || of.Family != p.Family })
}

// compared is one Service port of the rules, for comparison with versions of the API.
type compared struct {
	rep  *Judgment // of this Service port alone
	port ServicePort
	opts Options
	left []Service // IPVS mode: its rules if the API lacks the Service
}

func newCompared(rep *Judgment, p ServicePort, opts Options) compared {
	one := *rep
	one.others, one.Services = rep.Services, nil
	for i := range rep.Services {
		if s := &rep.Services[i]; s.Name == p.Name && s.Family == p.Family {
			one.Services = append(one.Services, *s)
		}
	}
	c := compared{rep: &one, port: p, opts: opts}
	c.left = c.leftOver()
	return c
}

// with compares the Service port with a version of the Service, and of its EndpointSlices.
func (c compared) with(service *serviceObject, endpoints sliceSet) []Finding {
	out, opts := NewCollector(), c.opts
	ports := c.port.among(service.ports())
	opts.Services, opts.Endpoints = &Services{}, &Endpoints{services: map[string]sliceSet{c.port.Service(): endpoints}}
	c.namedReport(ports).compareWith(&opts, ports, nil, out)
	return out.List
}

// Explain reports whether a Service port of the rules agrees with some version of the API: a version of the Service and a version of its
// endpoints. The API defines no order between the two. The options name the node and its facts.
func (v *Versions) Explain(rep *Judgment, p ServicePort, opts Options) bool {
	p = v.claimant(rep, p, true)
	c, tried := newCompared(rep, p, opts), map[string]bool{}
	return slices.ContainsFunc(v.services(p.Service()), func(service *serviceObject) bool {
		text := fmt.Sprint(service.ports())
		if tried[text] { // most versions are equal
			return false
		}
		tried[text] = true
		return slices.ContainsFunc(v.endpoints(p.Service()), func(set sliceSet) bool { return len(c.with(service, set)) == 0 })
	})
}

// Differences returns the differences between a Service port of the rules and the API's current state.
func (v *Versions) Differences(rep *Judgment, p ServicePort, opts Options) []Finding {
	p = v.claimant(rep, p, false)
	return newCompared(rep, p, opts).with(v.Services.objects[p.Service()], v.Endpoints.services[p.Service()])
}

// HadVersion reports whether the current state of a Service port in now is also a version in v.
func (v *Versions) HadVersion(now *Versions, p ServicePort) bool {
	name := p.Service()
	ports, endpoints := fmt.Sprint(now.Services.objects[name].ports()), now.Endpoints.services[name].text()
	return slices.ContainsFunc(v.services(name), func(past *serviceObject) bool { return fmt.Sprint(past.ports()) == ports }) &&
		slices.ContainsFunc(v.endpoints(name), func(past sliceSet) bool { return past.text() == endpoints })
}

// text returns a canonical form of the endpoints, independent of slices and order.
func (set sliceSet) text() string {
	var lines []string
	set.each(func(key apiServiceKey, ep apiEndpoint) { lines = append(lines, fmt.Sprint(key, ep)) })
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Current returns the current state without the past, as if it had just been listed. It shares the objects, which are immutable.
func (v *Versions) Current() *Versions {
	now, endpoints, all := NewVersions(), *v.Endpoints, *v.Services
	endpoints.services, endpoints.owner, all.objects = maps.Clone(endpoints.services), maps.Clone(endpoints.owner), maps.Clone(all.objects)
	now.Endpoints, now.Services = &endpoints, &all
	return now
}

// DropPast drops the past versions.
func (v *Versions) DropPast() {
	clear(v.pastSlices)
	clear(v.pastServices)
}

// Complete adds to a report the API's current state beside the rules of single Services: the names of the Services if the rules
// contain none, as in IPVS mode, and findings about the address families in which the report has no rules and the API has Services.
func (v *Versions) Complete(rep *Judgment, live Live) {
	if rep.ipvs == nil && len(rep.Families) > 1 {
		return // avoids one lookup for each Service
	}
	ports := v.Services.ports()
	if rep.ipvs != nil {
		rep.nameServices(ports)
		rep.ipvs.versions = v
	}
	out := NewCollector()
	rep.findUnserved(ports, live, out)
	rep.Findings = append(rep.Findings, out.List...)
}
