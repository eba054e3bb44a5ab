package export

import (
	"encoding/json"
	"fmt"
	"strings"

	"nodegate/policy"
)

// bottlerocket writes user data with the policy's settings. Bottlerocket supports neither link
// offloads nor custom units.
func bottlerocket(in Input) (Result, error) {
	s := in.collectSettings(refusePlainKey)
	for _, l := range in.Policy.Links {
		if !l.Off {
			s.addLack("link."+l.Name, "Bottlerocket does not support link settings", l.Metadata)
		}
	}
	for _, m := range s.modules {
		if m.Options != nil {
			s.addLack("module."+m.Name, "Bottlerocket does not support options of a module", m.Metadata)
		}
	}
	hugepages := s.bottlerocketHugepages(in.Policy)
	s.addNodeOnlyLacks(in.Policy)
	var b strings.Builder
	b.WriteString(headComment("bottlerocket", in, s.lacks, "Needs Bottlerocket 1.16.0 or later for autoload, and 1.64.0 for huge pages."))
	if len(s.sysctls) > 0 {
		b.WriteString("\n[settings.kernel.sysctl]\n")
	}
	for _, c := range s.sysctls {
		fmt.Fprintf(&b, "%s = %s\n", tomlString(c.key.String()), tomlString(c.value))
	}
	if hugepages != "" {
		b.WriteString("\n[settings.kernel.hugepages]\n" + hugepages)
	}
	for _, m := range s.modules {
		fmt.Fprintf(&b, "\n[settings.kernel.modules.%s]\nallowed = true\nautoload = true\n", m.Name)
	}
	for _, m := range s.absent {
		fmt.Fprintf(&b, "\n[settings.kernel.modules.%s]\nallowed = false\n", m.Name)
	}
	return Result{Text: []byte(b.String()), Lacks: s.lacks}, nil
}

// bottlerocketHugepages returns the settings below settings.kernel.hugepages, the only attributes of /sys that Bottlerocket sets:
// bottlerocket.dev/en/os/1.66.x/api/settings/kernel.
func (s *settings) bottlerocketHugepages(p *policy.Policy) string {
	names := map[policy.Key]string{
		"/sys/kernel/mm/transparent_hugepage/enabled":               "transparent.enabled",
		"/sys/kernel/mm/transparent_hugepage/defrag":                "transparent.defrag",
		"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":    "static.2Mi.count",
		"/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "static.1Gi.count",
	}
	text := ""
	for _, c := range p.Sysfs {
		switch name, is := names[c.Key]; {
		case c.Off || c.Unknown != "" || c.Value == "": // reported already
		case is:
			text += name + " = " + tomlString(c.Value) + "\n"
		default:
			s.addLack(c.Key.CheckName(), "of /sys, Bottlerocket sets only huge pages", c.Metadata)
		}
	}
	return text
}

// tomlString returns a basic string of TOML, which accepts all escapes of JSON.
func tomlString(s string) string {
	quoted, _ := json.Marshal(s) // a string never fails
	return string(quoted)
}
