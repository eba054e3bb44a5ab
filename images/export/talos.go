package export

import (
	"slices"
	"strconv"
	"strings"

	"nodegate/policy"
)

type talosMachine struct {
	Machine struct {
		Kernel struct {
			Modules []talosModule `yaml:",omitempty"`
		} `yaml:",omitempty"`
		Sysfs map[string]string `yaml:",omitempty"`
	}
}

// talosSysctls replaces machine.sysctls since Talos 1.14. A key may have slashes in place of dots:
// docs.siderolabs.com/talos/v1.14/reference/configuration/runtime/sysctlconfig.
type talosSysctls struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Params     map[string]string
}

type talosModule struct {
	Name       string
	Parameters []string `yaml:",omitempty"`
}

type talosEthernet struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Name       string
	Features   map[string]bool   `yaml:",omitempty"`
	Rings      map[string]uint32 `yaml:",omitempty"`
	Channels   map[string]uint32 `yaml:",omitempty"`
}

// talos writes a machine configuration patch with the settings, and an EthernetConfig for each link
// that is matched by name.
func talos(in Input) (Result, error) {
	s := in.collectSettings(refuseGlob)
	var m talosMachine
	for _, module := range s.modules {
		m.Machine.Kernel.Modules = append(m.Machine.Kernel.Modules, talosModule{module.Name, module.Arguments()})
	}
	for _, module := range s.absent {
		s.addLack("module."+module.Name, "Talos does not keep a module from loading", module.Metadata)
	}
	m.Machine.Sysfs = s.talosAttributes(in.Policy)
	documents := []any{m}
	params := map[string]string{}
	for _, c := range s.sysctls {
		name := c.key.String()
		if strings.Contains(string(c.key), ".") {
			name = string(c.key)
		}
		params[name] = c.value
	}
	if len(params) > 0 {
		documents = append(documents, talosSysctls{"v1alpha1", "SysctlConfig", params})
	}
	for _, l := range in.Policy.Links {
		if e, ok := s.ethernetConfig(l); ok {
			documents = append(documents, e)
		}
	}
	s.addNodeOnlyLacks(in.Policy)
	var b strings.Builder
	b.WriteString(headComment("talos", in, s.lacks, "Needs Talos 1.14 or later for SysctlConfig.",
		"Apply with: talosctl patch machineconfig --patch @FILE"))
	for i, d := range documents {
		if i > 0 {
			b.WriteString("---\n")
		}
		text, err := encodeYAML(d)
		if err != nil {
			return Result{}, err
		}
		b.Write(text)
	}
	return Result{Text: []byte(b.String()), Lacks: s.lacks}, nil
}

// ethernetConfig returns a link's features, if Talos can find the link and supports them.
func (s *settings) ethernetConfig(l policy.Link) (talosEthernet, bool) {
	name := "link." + l.Name
	switch {
	case l.Off:
		return talosEthernet{}, false
	case l.Unknown != "":
		s.addLack(name, "depends on "+l.Unknown+", which is known only on the node", l.Metadata)
		return talosEthernet{}, false
	case l.Match != policy.Match{Name: l.Match.Name} || strings.ContainsAny(l.Match.Name, "*?[\\"):
		s.addLack(name, "Talos selects a link only by its exact name", l.Metadata)
		return talosEthernet{}, false
	}
	e := talosEthernet{"v1alpha1", "EthernetConfig", l.Match.Name, map[string]bool{}, map[string]uint32{}, map[string]uint32{}}
	numbers := map[policy.LinkKind]map[string]uint32{policy.Ring: e.Rings, policy.Channels: e.Channels}
	for _, t := range l.Settings {
		switch {
		case t.Group:
			s.addLack(name, "offload "+t.Name+" is a group; Talos needs the kernel's feature names, which depend on the device", l.Metadata)
		case t.Value == "max":
			s.addLack(name, t.Label()+" is the driver's maximum, and Talos needs a number", l.Metadata)
		case t.Kind == policy.Offload:
			e.Features[t.Name] = t.Value == "on"
		case numbers[t.Kind] != nil:
			n, _ := strconv.ParseUint(t.Value, 10, 32)
			numbers[t.Kind][t.Name] = uint32(n)
		case t.Kind == policy.MTU:
			s.addLack(name, "set the mtu in Talos' own network configuration of the link", l.Metadata)
		case t.Kind.IsParameter():
			s.addLack(name, "Talos cannot set parameters of a link that appears later", l.Metadata)
		default:
			s.addLack(name, "Talos does not set "+t.Label(), l.Metadata)
		}
	}
	return e, len(e.Features)+len(e.Rings)+len(e.Channels) > 0
}

// talosAttributes returns the attributes of /sys whose paths Talos can express: it separates components by dots, and has no globs.
func (s *settings) talosAttributes(p *policy.Policy) map[string]string {
	all := map[string]string{}
	for _, c := range s.sysfs {
		below := strings.TrimPrefix(string(c.key), "/sys/")
		if why := refusePlainKey(c.key); why != "" {
			i := slices.IndexFunc(p.Sysfs, func(a policy.Sysctl) bool { return a.Key == c.key && a.Value == c.value })
			s.addLack(c.key.CheckName(), why, p.Sysfs[i].Metadata)
			continue
		}
		all[strings.ReplaceAll(below, "/", ".")] = c.value
	}
	return all
}
