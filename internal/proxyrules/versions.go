package proxyrules

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Versions is what the API said of every Service since a list, in order. Rules that kube-proxy wrote in time agree with
// one of them, and not always with the newest.
type Versions struct {
	Endpoints *Endpoints // as listed
	Services  *Services

	slices   map[string]map[string]*endpointSlice // by Service and name, as they are now
	owner    map[string]string                    // of a slice, ns/name: its Service
	objects  map[string]*serviceObject            // as they are now
	pastEps  map[string][]*apiEndpoints           // by Service, oldest first: what was replaced
	pastPort map[string][][]apiServicePort
}

// NewVersions returns one that waits for its lists.
func NewVersions() *Versions {
	return &Versions{
		slices: map[string]map[string]*endpointSlice{}, owner: map[string]string{}, objects: map[string]*serviceObject{},
		pastEps: map[string][]*apiEndpoints{}, pastPort: map[string][][]apiServicePort{},
	}
}

// ReadEndpointSlices reads the list, as LoadEndpointSlices does.
func (v *Versions) ReadEndpointSlices(r io.Reader) (err error) {
	v.Endpoints, err = loadEndpointSlices(r, v.putSlice)
	return err
}

// ReadServices reads the list, as LoadServices does.
func (v *Versions) ReadServices(r io.Reader) (err error) {
	v.Services, err = loadServices(r, v.putService)
	return err
}

// Change is one event of a watch, or a new list in place of those that were missed.
type Change struct {
	deleted bool
	slice   *endpointSlice
	service *serviceObject
	relist  *Versions
}

// SliceChange reads an EndpointSlice of a watch.
func SliceChange(object []byte, deleted bool) (Change, error) {
	c := Change{slice: &endpointSlice{}, deleted: deleted}
	if err := json.Unmarshal(object, c.slice); err != nil {
		return Change{}, fmt.Errorf("reading an EndpointSlice: %w", err)
	}
	return c, nil
}

// ServiceChange reads a Service of a watch.
func ServiceChange(object []byte, deleted bool) (Change, error) {
	c := Change{service: &serviceObject{}, deleted: deleted}
	if err := json.Unmarshal(object, c.service); err != nil {
		return Change{}, fmt.Errorf("reading a Service: %w", err)
	}
	return c, nil
}

// Relisted is the change from what was known to new lists.
func Relisted(now *Versions) Change { return Change{relist: now} }

// Apply makes a version of the change. It returns the Services, ns/name, that the change is about.
func (v *Versions) Apply(c Change) []string {
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

// replace keeps what was, and goes on from new lists.
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

func union[T any](a, b map[string]T) []string {
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

// endpoints returns a Service's endpoints as they are now, nil if it has no slice.
func (v *Versions) endpoints(name string) *apiEndpoints {
	all := &Endpoints{services: map[string]*apiEndpoints{}}
	for _, s := range v.slices[name] {
		all.add(s)
	}
	return all.services[name]
}

// ports returns the ports of a Service as they are now, none if it is not there or has no address.
func (v *Versions) ports(name string) []apiServicePort {
	all := &Services{}
	if s := v.objects[name]; s != nil {
		all.add(s)
	}
	return all.list
}

// ServicePort names a port of a Service, ns/name[:port], in one address family.
type ServicePort struct{ Name, Family string }

// Service returns ns/name.
func (p ServicePort) Service() string {
	ns, name, _ := SplitServicePort(p.Name)
	return ns + "/" + name
}

// Of returns the Service port that a finding is about.
func Of(f *Finding) ServicePort { return ServicePort{f.Service, f.Family} }

// Explain reports whether a Service port of the rules agrees with some version that the API had.
func (v *Versions) Explain(rep *Report, p ServicePort, node, zone string) bool {
	name := p.Service()
	return v.agrees(rep, p, node, zone, append(slices.Clone(v.pastPort[name]), v.ports(name)),
		append(slices.Clone(v.pastEps[name]), v.endpoints(name)))
}

// Agrees reports whether a Service port of the rules agrees with what the API says now.
func (v *Versions) Agrees(rep *Report, p ServicePort, node, zone string) bool {
	name := p.Service()
	return v.agrees(rep, p, node, zone, [][]apiServicePort{v.ports(name)}, []*apiEndpoints{v.endpoints(name)})
}

// SameAs reports whether both have the same Service port now.
func (v *Versions) SameAs(other *Versions, p ServicePort) bool {
	name := p.Service()
	return fmt.Sprint(v.ports(name)) == fmt.Sprint(other.ports(name)) && v.endpoints(name).text() == other.endpoints(name).text()
}

// text is the same for the same endpoints, in whatever slices and order.
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

// agrees looks for a version of the Service and one of its endpoints; the API orders neither against the other.
func (v *Versions) agrees(rep *Report, p ServicePort, node, zone string, ports [][]apiServicePort, endpoints []*apiEndpoints) bool {
	one := Report{Mode: rep.Mode, Version: rep.Version, families: rep.families}
	for i := range rep.Services {
		if s := &rep.Services[i]; s.Name == p.Name && s.Family == p.Family {
			one.Services = append(one.Services, *s)
		}
	}
	none := func(opts Options, about func(c *comparison)) bool {
		out := NewCollector()
		opts.NodeName, opts.Zone = node, zone
		c := newComparison(&one, &opts, nil, out)
		about(&c)
		return len(out.List) == 0
	}
	service := slices.ContainsFunc(ports, func(list []apiServicePort) bool {
		list = slices.DeleteFunc(slices.Clone(list), func(s apiServicePort) bool {
			return s.family != p.Family || servicePort(s.namespace, s.name, s.port) != p.Name
		})
		return none(Options{Services: &Services{list: list}}, (*comparison).services)
	})
	return service && slices.ContainsFunc(endpoints, func(e *apiEndpoints) bool {
		all := &Endpoints{services: map[string]*apiEndpoints{}}
		if e != nil {
			all.services[p.Service()] = e
		}
		return none(Options{Endpoints: all}, func(c *comparison) {
			for i := range one.Services {
				c.endpoints(&one.Services[i])
			}
		})
	})
}
