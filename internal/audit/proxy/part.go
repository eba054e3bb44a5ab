package proxy

import (
	"bytes"
	"slices"
	"strings"
)

// Of returns the current state of some Services, as Current does for all of them.
func (v *Versions) Of(services []string) *Versions {
	now := NewVersions()
	now.Endpoints = &Endpoints{Version: v.Endpoints.Version, services: map[string]*apiEndpoints{}}
	now.Services = &Services{Version: v.Services.Version}
	for _, name := range services {
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

// KeepOnly removes everything that is not about the given Services. A part of the rules shows
// nothing else reliably.
func (r *Judgment) KeepOnly(services []string) {
	other := func(port string) bool { return !slices.Contains(services, ServicePort{Name: port}.Service()) }
	r.Services = slices.DeleteFunc(r.Services, func(s Service) bool { return other(s.Name) })
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return f.Service == "" || other(f.Service) })
}

// NamedIn returns a function that reports whether raw rules or map elements name one of the
// Services. Both modes name a Service port in every rule that leads to its chains: as `ns/name`,
// `ns/name:port` or `ns/name/proto/port`. A longer name that ends in the same way is named too.
func NamedIn(services []string) func(raw []byte) bool {
	names := make([][]byte, len(services))
	for i, s := range services {
		names[i] = []byte(s)
	}
	return func(raw []byte) bool {
		for _, name := range names {
			for b := raw; ; {
				i := bytes.Index(b, name)
				if i < 0 {
					break
				}
				b = b[i+len(name):]
				if len(b) == 0 || !strings.ContainsRune("-0123456789abcdefghijklmnopqrstuvwxyz", rune(b[0])) {
					return true
				}
			}
		}
		return false
	}
}
