package export

import (
	"encoding/json"
	"fmt"
	"strings"
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
	s.lackSysfs(in.Policy, "Bottlerocket")
	s.addNodeOnlyLacks(in.Policy)
	var b strings.Builder
	b.WriteString(headComment("bottlerocket", in, s.lacks, "Needs Bottlerocket 1.16.0 or later for autoload."))
	if len(s.sysctls) > 0 {
		b.WriteString("\n[settings.kernel.sysctl]\n")
	}
	for _, c := range s.sysctls {
		fmt.Fprintf(&b, "%s = %s\n", tomlString(c.key.String()), tomlString(c.value))
	}
	for _, m := range s.modules {
		fmt.Fprintf(&b, "\n[settings.kernel.modules.%s]\nallowed = true\nautoload = true\n", m.Name)
	}
	for _, m := range s.absent {
		fmt.Fprintf(&b, "\n[settings.kernel.modules.%s]\nallowed = false\n", m.Name)
	}
	return Result{Text: []byte(b.String()), Lacks: s.lacks}, nil
}

// tomlString returns a basic string of TOML, which accepts all escapes of JSON.
func tomlString(s string) string {
	quoted, _ := json.Marshal(s) // a string never fails
	return string(quoted)
}
