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

// Explain reports whether a Service port of the rules agrees with some version of the API: a version of the Service and a version of its
// endpoints. The API defines no order between the two. The options name the node and its facts.
func (v *Versions) Explain(rep *Judgment, p ServicePort, opts Options) bool {
	p = v.claimant(rep, p, true)
	name := p.Service()
	c := newCompared(rep, p, opts)
	ports, endpoints := v.portVersions(name), append(slices.Clone(v.pastEps[name]), v.endpoints(name))
	served := func(with []apiServicePort) bool { return len(c.service(with)) == 0 && len(c.health(with)) == 0 }
	reached := func(with []apiServicePort) bool {
		rep := c.namedReport(with)
		return slices.ContainsFunc(endpoints, func(e *apiEndpoints) bool { return len(c.endpoints(rep, e)) == 0 })
	}
	if rep.ipvs == nil {
		return slices.ContainsFunc(ports, served) && reached(nil)
	}
	tried := map[string]bool{} // most versions are equal
	return slices.ContainsFunc(ports, func(with []apiServicePort) bool {
		text := fmt.Sprint(with)
		if tried[text] {
			return false
		}
		tried[text] = true
		return served(with) && reached(with)
	})
}

// Differences returns the differences between a Service port of the rules and the API's current state.
func (v *Versions) Differences(rep *Judgment, p ServicePort, opts Options) []Finding {
	p = v.claimant(rep, p, false)
	name := p.Service()
	c := newCompared(rep, p, opts)
	ports := v.ports(name)
	return slices.Concat(c.service(ports), c.endpoints(c.namedReport(ports), v.endpoints(name)), c.health(ports))
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

// NameServices adds the names of the API's current Services to the report if the rules contain none, as in IPVS mode.
func (v *Versions) NameServices(rep *Judgment) {
	if rep.ipvs == nil {
		return
	}
	var ports []apiServicePort
	for name := range v.objects {
		ports = append(ports, v.ports(name)...)
	}
	rep.nameServices(ports)
	rep.ipvs.versions = v
}
