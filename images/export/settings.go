package export

import (
	"fmt"
	"strings"

	"nodegate/policy"
)

// settings is what a target without nodegate can be told, and what not.
type settings struct {
	modules []string
	sysctls []sysctl
	lacks   []Lack
}

type sysctl struct {
	key   policy.Key
	value string
}

func (s *settings) lack(name, why string, a policy.Metadata) {
	s.lacks = append(s.lacks, Lack{name, why, a.Range})
}

// settings takes the policy apart. refuse says why the target does not take a
// key, "" where it does.
func (in Input) settings(refuse func(policy.Key) string) settings {
	var s settings
	for _, m := range in.Policy.Modules {
		switch {
		case m.Unknown != "":
			s.lack("module."+m.Name, "depends on "+m.Unknown+", which only the node knows", m.Metadata)
		case !m.Off:
			s.modules = append(s.modules, m.Name)
		}
	}
	for _, c := range in.Policy.Sysctls {
		name := "sysctl." + c.Key.String()
		switch {
		case c.Off:
		case c.Unknown != "":
			s.lack(name, "depends on "+c.Unknown+", which only the node knows", c.Metadata)
		case c.Value == "":
			s.lack(name, c.Want()+": a fixed value would undo a better one", c.Metadata)
		case refuse(c.Key) != "":
			s.lack(name, refuse(c.Key), c.Metadata)
		default:
			s.sysctls = append(s.sysctls, sysctl{c.Key, c.Value})
		}
	}
	return s
}

// proof adds what can only be had from nodegate on the node.
func (s *settings) proof(p *policy.Policy) {
	if looks := len(p.Problems) + len(p.Probes); looks > 0 {
		s.lacks = append(s.lacks, Lack{Name: fmt.Sprintf("%d checks and probes", looks), Why: "they need nodegate on the node"})
	}
	if p.Gate.Range.Filename != "" {
		s.lacks = append(s.lacks, Lack{"gate", "nothing holds " + p.Gate.Unit + " without nodegate on the node", p.Gate.Range})
	}
	if p.Publish.Condition != "" {
		s.lacks = append(s.lacks, Lack{"publish", "nobody writes " + p.Publish.Condition + " without nodegate on the node", p.Publish.Range})
	}
	if p.Audit.On {
		s.lacks = append(s.lacks, Lack{"audit", "nobody compares kube-proxy's rules without nodegate on the node", p.Audit.Range})
	}
}

// plainKey refuses what a target would not understand that splits keys at dots
// and knows no globs.
func plainKey(k policy.Key) string {
	switch {
	case k.IsGlob():
		return "the target knows no globs"
	case strings.Contains(string(k), "."):
		return "the target takes no dot inside a component of a key"
	}
	return ""
}
