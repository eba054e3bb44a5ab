package export

import (
	"strings"

	"nodegate/policy"
)

type talosMachine struct {
	Machine struct {
		Kernel struct {
			Modules []talosModule `yaml:",omitempty"`
		} `yaml:",omitempty"`
		Sysctls map[string]string `yaml:",omitempty"`
	}
}

type talosModule struct{ Name string }

type talosEthernet struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Name       string
	Features   map[string]bool
}

// talos is a machine configuration patch: the settings, and an EthernetConfig
// for each link that is named (Talos 1.10 or later).
func talos(in Input) (Result, error) {
	s := in.settings(plainKey)
	var m talosMachine
	for _, name := range s.modules {
		m.Machine.Kernel.Modules = append(m.Machine.Kernel.Modules, talosModule{name})
	}
	m.Machine.Sysctls = map[string]string{}
	for _, c := range s.sysctls {
		m.Machine.Sysctls[c.key.String()] = c.value
	}
	documents := []any{m}
	for _, l := range in.Policy.Links {
		if e, ok := s.ethernet(l); ok {
			documents = append(documents, e)
		}
	}
	s.proof(in.Policy)
	var b strings.Builder
	b.WriteString(head("talos", in, s.lacks, "talosctl patch machineconfig --patch @FILE"))
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

// ethernet is a link's features, where Talos can find the link and knows them.
func (s *settings) ethernet(l policy.Link) (talosEthernet, bool) {
	name := "link." + l.Name
	switch {
	case l.Off:
		return talosEthernet{}, false
	case l.Unknown != "":
		s.lack(name, "depends on "+l.Unknown+", which only the node knows", l.Metadata)
		return talosEthernet{}, false
	case l.Match != policy.Match{Name: l.Match.Name} || strings.ContainsAny(l.Match.Name, "*?[\\"):
		s.lack(name, "Talos finds a link by its one exact name only", l.Metadata)
		return talosEthernet{}, false
	}
	e := talosEthernet{"v1alpha1", "EthernetConfig", l.Match.Name, map[string]bool{}}
	for _, o := range l.Offloads {
		if o.Group {
			s.lack(name, "offload "+o.Name+" is a group; Talos wants the kernel's names, of those that this device has", l.Metadata)
			continue
		}
		e.Features[o.Name] = o.On
	}
	if l.MTU != 0 {
		s.lack(name, "the mtu stands in Talos' own network configuration of the link", l.Metadata)
	}
	if len(l.Sysctls) > 0 {
		s.lack(name, "Talos sets no parameter of a link that comes later", l.Metadata)
	}
	return e, len(e.Features) > 0
}
