package export

import (
	"fmt"
	"slices"

	"nodegate/policy"
)

// settings splits a policy into the settings that a target without nodegate accepts, and the lacks.
type settings struct {
	modules []policy.Module // to load
	absent  []policy.Module
	sysctls []sysctl
	sysfs   []sysctl
	lacks   []Lack
}

type sysctl struct {
	key   policy.Key
	value string
}

func (s *settings) addLack(name, why string, a policy.Metadata) {
	s.lacks = append(s.lacks, Lack{name, why, a.Range})
}

// collectSettings splits the policy.
func (in Input) collectSettings() settings {
	var s settings
	for _, m := range in.Policy.Modules {
		switch {
		case m.Unknown != "":
			s.addLack("module."+m.Name, "depends on "+m.Unknown+", which is known only on the node", m.Metadata)
		case m.Off:
		case m.Absent:
			s.absent = append(s.absent, m)
		default:
			s.modules = append(s.modules, m)
		}
	}
	s.sysctls = s.collectParameters(in.Policy.Sysctls)
	s.sysfs = s.collectParameters(in.Policy.Sysfs)
	return s
}

// modprobeLines returns the lines of modprobe.d(5) for the modules.
func (s settings) modprobeLines() []string {
	var all []string
	for _, m := range slices.Concat(s.modules, s.absent) {
		all = append(all, m.ModprobeLines()...)
	}
	return all
}

// collectParameters returns the parameters that have one value on every node.
func (s *settings) collectParameters(required []policy.Sysctl) []sysctl {
	var all []sysctl
	for _, c := range required {
		name := c.Key.CheckName()
		switch {
		case c.Off:
		case c.Unknown != "":
			s.addLack(name, "depends on "+c.Unknown+", which is known only on the node", c.Metadata)
		case c.Value == "":
			s.addLack(name, c.Want()+": a fixed value could replace a better one", c.Metadata)
		default:
			all = append(all, sysctl{c.Key, c.Value})
		}
	}
	return all
}

// addNodeOnlyLacks adds the parts of a policy that need nodegate on the node.
func (s *settings) addNodeOnlyLacks(p *policy.Policy) {
	if n := len(p.Problems) + len(p.Execs) + len(p.Probes); n > 0 {
		s.lacks = append(s.lacks, Lack{Name: fmt.Sprintf("checks and probes (%d)", n), Why: "they need nodegate on the node"})
	}
	if p.Gate.Range.Filename != "" {
		s.lacks = append(s.lacks, Lack{"gate", "without nodegate on the node nothing holds " + p.Gate.Unit, p.Gate.Range})
	}
	if p.Publish.Condition != "" {
		s.lacks = append(s.lacks, Lack{"publish", "without nodegate on the node nothing publishes " + p.Publish.Condition, p.Publish.Range})
	}
	if p.Audit.On {
		s.lacks = append(s.lacks, Lack{"audit", "without nodegate on the node nothing compares kube-proxy's rules", p.Audit.Range})
	}
}
