package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Versions holds, in order, all states of the API's Services since a list. Rules that kube-proxy
// wrote in time agree with one of these states, not always with the newest.
type Versions struct {
	Endpoints *Endpoints // as listed
	Services  *Services

	slices   map[string]map[string]*endpointSlice // by Service and name, current
	owner    map[string]string                    // Service of a slice, ns/name
	objects  map[string]*serviceObject            // current
	pastEps  map[string][]*apiEndpoints           // by Service, oldest first: replaced endpoints
	pastPort map[string][][]apiServicePort
}

// NewVersions returns empty Versions, to be filled from the two lists.
func NewVersions() *Versions {
	return &Versions{
		slices: map[string]map[string]*endpointSlice{}, owner: map[string]string{}, objects: map[string]*serviceObject{},
		pastEps: map[string][]*apiEndpoints{}, pastPort: map[string][][]apiServicePort{},
	}
}

// ReadEndpointSlices reads the list as LoadEndpointSlices does.
func (v *Versions) ReadEndpointSlices(r io.Reader) (err error) {
	v.Endpoints, err = loadEndpointSlices(r, v.putSlice)
	return err
}

// ReadServices reads the list as LoadServices does.
func (v *Versions) ReadServices(r io.Reader) (err error) {
	v.Services, err = loadServices(r, v.putService)
	return err
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
	if err := json.Unmarshal(object, c.slice); err != nil {
		return Event{}, fmt.Errorf("reading an EndpointSlice: %w", err)
	}
	return c, nil
}

// ServiceChange parses a watch event about a Service.
func ServiceChange(object []byte, deleted bool) (Event, error) {
	c := Event{service: &serviceObject{}, deleted: deleted}
	if err := json.Unmarshal(object, c.service); err != nil {
		return Event{}, fmt.Errorf("reading a Service: %w", err)
	}
	return c, nil
}

// Relisted returns the event for a new list.
func Relisted(now *Versions) Event { return Event{relist: now} }

// Relist returns the new list of an event, or nil for a single change.
func (c Event) Relist() *Versions { return c.relist }

// Apply adds a version with the change. It returns the changed Services as ns/name.
func (v *Versions) Apply(c Event) []string {
	switch {
	case c.relist != nil:
		return v.replace(c.relist)
	case c.service != nil:
		name := c.service.Metadata.Namespace + "/" + c.service.Metadata.Name
		v.pastPort[name] = append(v.pastPort[name], v.ports(name))
		delete(v.objects, name)
		if !c.deleted {
			v.putService(c.service)
		}
		return []string{name}
	}
	id := c.slice.Metadata.Namespace + "/" + c.slice.Metadata.Name
	var about []string
	for _, name := range []string{v.owner[id], c.slice.service()} {
		if name != "" && !slices.Contains(about, name) {
			about = append(about, name)
			v.pastEps[name] = append(v.pastEps[name], v.endpoints(name))
		}
	}
	delete(v.slices[v.owner[id]], id)
	delete(v.owner, id)
	if !c.deleted {
		v.putSlice(c.slice)
	}
	return about
}

// replace moves the current state to the past and continues with the new lists.
func (v *Versions) replace(now *Versions) []string {
	var about []string
	for _, name := range union(v.slices, now.slices) {
		v.pastEps[name] = append(v.pastEps[name], v.endpoints(name))
		about = append(about, name)
	}
	for _, name := range union(v.objects, now.objects) {
		v.pastPort[name] = append(v.pastPort[name], v.ports(name))
		about = append(about, name)
	}
	v.slices, v.owner, v.objects = now.slices, now.owner, now.objects
	return about
}

func union[A, B any](a map[string]A, b map[string]B) []string {
	var all []string
	for name := range a {
		all = append(all, name)
	}
	for name := range b {
		if _, both := a[name]; !both {
			all = append(all, name)
		}
	}
	return all
}

func (v *Versions) putSlice(s *endpointSlice) {
	name, id := s.service(), s.Metadata.Namespace+"/"+s.Metadata.Name
	if name == "" {
		return
	}
	if v.slices[name] == nil {
		v.slices[name] = map[string]*endpointSlice{}
	}
	v.slices[name][id], v.owner[id] = s, name
}

func (v *Versions) putService(s *serviceObject) {
	v.objects[s.Metadata.Namespace+"/"+s.Metadata.Name] = s
}

// endpoints returns a Service's current endpoints, or nil without a slice.
func (v *Versions) endpoints(name string) *apiEndpoints {
	all := &Endpoints{services: map[string]*apiEndpoints{}}
	for _, s := range v.slices[name] {
		all.add(s)
	}
	return all.services[name]
}

// ports returns a Service's current ports; nil if it does not exist or lacks an address.
func (v *Versions) ports(name string) []apiServicePort {
	all := &Services{}
	if s := v.objects[name]; s != nil {
		all.add(s)
	}
	return all.list
}

// portVersions returns the past and current ports of a Service, none if v is nil.
func (v *Versions) portVersions(name string) [][]apiServicePort {
	if v == nil {
		return nil
	}
	return append(slices.Clone(v.pastPort[name]), v.ports(name))
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
	return slices.DeleteFunc(slices.Clone(ports), func(of apiServicePort) bool { return of.name != p.Name || of.family != p.Family })
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

// with compares the Service port with a version of the Service's ports and, unless there are none to compare, of its endpoints.
func (c compared) with(ports []apiServicePort, endpoints ...*apiEndpoints) []Finding {
	out, opts := NewCollector(), c.opts
	ports = c.port.among(ports)
	opts.Services, opts.Endpoints = &Services{list: ports}, nil
	for _, e := range endpoints {
		opts.Endpoints = &Endpoints{services: map[string]*apiEndpoints{}}
		if e != nil {
			opts.Endpoints.services[c.port.Service()] = e
		}
	}
	c.namedReport(ports).compareWith(&opts, nil, out)
	return out.List
}

// Explain reports whether a Service port of the rules agrees with some version of the API: a version of the Service and a version of its
// endpoints. The API defines no order between the two. The options name the node and its facts.
func (v *Versions) Explain(rep *Judgment, p ServicePort, opts Options) bool {
	p = v.claimant(rep, p, true)
	c := newCompared(rep, p, opts)
	endpoints, tried := append(slices.Clone(v.pastEps[p.Service()]), v.endpoints(p.Service())), map[string]bool{}
	return slices.ContainsFunc(v.portVersions(p.Service()), func(ports []apiServicePort) bool {
		text := fmt.Sprint(ports)
		if tried[text] || len(c.with(ports)) > 0 { // most versions are equal
			return false
		}
		tried[text] = true
		return slices.ContainsFunc(endpoints, func(e *apiEndpoints) bool { return len(c.with(ports, e)) == 0 })
	})
}

// Differences returns the differences between a Service port of the rules and the API's current state.
func (v *Versions) Differences(rep *Judgment, p ServicePort, opts Options) []Finding {
	p = v.claimant(rep, p, false)
	return newCompared(rep, p, opts).with(v.ports(p.Service()), v.endpoints(p.Service()))
}

// HadVersion reports whether the current state of a Service port in now is also a version in v.
func (v *Versions) HadVersion(now *Versions, p ServicePort) bool {
	name := p.Service()
	ports, endpoints := fmt.Sprint(now.ports(name)), now.endpoints(name).text()
	return slices.ContainsFunc(v.portVersions(name), func(past []apiServicePort) bool {
		return fmt.Sprint(past) == ports
	}) && slices.ContainsFunc(append(slices.Clone(v.pastEps[name]), v.endpoints(name)), func(past *apiEndpoints) bool {
		return past.text() == endpoints
	})
}

// text returns a canonical form of the endpoints, independent of slices and order.
func (e *apiEndpoints) text() string {
	if e == nil {
		return ""
	}
	var lines []string
	for port, endpoints := range e.ports {
		for _, ep := range endpoints {
			lines = append(lines, fmt.Sprint(port, ep))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Current returns the current state without the past, as if it had just been listed. It shares the objects, which are immutable.
func (v *Versions) Current() *Versions {
	now := NewVersions()
	now.Endpoints = &Endpoints{Version: v.Endpoints.Version, services: map[string]*apiEndpoints{}}
	now.Services = &Services{Version: v.Services.Version}
	for _, name := range union(v.slices, v.objects) {
		for _, s := range v.slices[name] {
			now.Endpoints.add(s)
			now.putSlice(s)
		}
		if s := v.objects[name]; s != nil {
			now.Services.Count++
			now.Services.add(s)
			now.putService(s)
		}
	}
	return now
}

// DropIndex drops data that Compare needs and Now rebuilds: 7 MB for 50,000 endpoints.
func (v *Versions) DropIndex() {
	v.Endpoints = &Endpoints{Slices: v.Endpoints.Slices, Version: v.Endpoints.Version}
	v.Services = &Services{Count: v.Services.Count, Version: v.Services.Version}
}

// DropPast drops the past versions.
func (v *Versions) DropPast() {
	clear(v.pastEps)
	clear(v.pastPort)
}

// Complete adds to a report what the API's current state shows beside the rules of single Services: the names of the Services if the rules
// contain none, as in IPVS mode, and findings about the address families in which the report has no rules and the API has Services.
func (v *Versions) Complete(rep *Judgment, live Live) {
	if rep.ipvs == nil && len(rep.Families) > 1 {
		return // avoids one lookup for each Service
	}
	all := &Services{}
	for _, s := range v.objects {
		all.add(s)
	}
	if rep.ipvs != nil {
		rep.nameServices(all.list)
		rep.ipvs.versions = v
	}
	out := NewCollector()
	rep.findUnserved(&Options{Services: all, Live: live}, out)
	rep.Findings = append(rep.Findings, out.List...)
}
