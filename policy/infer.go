package policy

import (
	"slices"
	"strings"

	"nodegate/policy/kernels"
)

// ModuleOf returns the kernel module that creates a parameter, or "" for a parameter that always
// exists. A parameter of a module below /sys may also belong to code that is part of the kernel.
func ModuleOf(key Key) string {
	for _, m := range [][2]string{
		{"net/bridge/", "br_netfilter"},
		{"net/netfilter/nf_conntrack_", "nf_conntrack"},
		{"net/nf_conntrack_max", "nf_conntrack"},
		{"net/ipv4/vs/", "ip_vs"},
	} {
		if strings.HasPrefix(string(key), m[0]) {
			return m[1]
		}
	}
	if below, is := strings.CutPrefix(string(key), sysfsRoot+"module/"); is {
		if name, _, _ := strings.Cut(below, "/"); !Key(name).IsGlob() {
			return name
		}
	}
	return ""
}

// ModuleFor returns the module of a policy that creates a missing parameter: itself, or by a module that it needs. It reads the record of
// kernels, so it is only for parameters that do not exist yet.
func ModuleFor(key Key, modules []string) string {
	if name := ModuleOf(key); name != "" || len(modules) == 0 {
		return name
	}
	catalogue, err := kernels.Read()
	if err != nil { // it is part of the program, and its test reads it
		return ""
	}
	return catalogue.Brings(string(key), modules)
}

// ModuleNames returns the modules that the policy loads on this node.
func (p *Policy) ModuleNames() []string {
	var names []string
	for _, m := range p.EachModule() {
		if m.Applies() && !m.Absent {
			names = append(names, m.Name)
		}
	}
	return names
}

// inferModules adds the modules that create the policy's sysctls. A module that a blocking sysctl needs is blocking. If it is unknown
// whether any of these sysctls apply, the module depends on the same facts.
func (p *Policy) inferModules() {
	for _, known := range []bool{true, false} {
		for _, s := range p.Sysctls {
			name := ModuleOf(s.Key)
			i := slices.IndexFunc(p.Modules, func(m Module) bool { return m.Name == name })
			switch {
			case name == "" || s.Off || known != (s.WhenUnknown == ""):
			case i < 0:
				p.Modules = append(p.Modules, Module{Name: name, Metadata: Metadata{
					Severity: s.Severity, Range: s.Range, Ref: s.Ref, Reason: "It creates " + s.Key.String() + ".",
					Unknown: s.WhenUnknown, WhenUnknown: s.WhenUnknown,
				}})
			default:
				mergeSeverity(&p.Modules[i].Metadata, s.Metadata)
			}
		}
	}
}

// setDefaultDrift sets drift for the requirements that do not set it. With repair = false, the
// default is "report": the author wants a person to decide, so watch must not correct either.
func (p *Policy) setDefaultDrift() {
	usual := Correct
	if !p.Gate.Repair {
		usual = Report
	}
	setDrift(p.Modules, usual)
	setDrift(p.Sysctls, usual)
	setDrift(p.Sysfs, usual)
	setDrift(p.Links, usual)
	setDrift(p.Problems, Report)
	setDrift(p.Execs, Report)
	for i := range p.Probes {
		p.Probes[i].Drift = Ignore // watch may not create namespaces
		if p.Probes[i].Name == Service {
			p.Probes[i].Drift = Report
		}
	}
}

func setDrift[T any, P requirement[T]](all []T, d Drift) {
	for i := range all {
		if a := P(&all[i]).metadata(); a.Drift == "" {
			a.Drift = d
		}
	}
}
