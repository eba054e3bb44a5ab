package export

import (
	"encoding/json"
	"fmt"
	"strings"
)

// bottlerocket is user data: the settings. Bottlerocket lets nobody set an
// offload, nor run a unit of his own.
func bottlerocket(in Input) (Result, error) {
	s := in.settings(plainKey)
	for _, l := range in.Policy.Links {
		if !l.Off {
			s.lack("link."+l.Name, "Bottlerocket has no setting for links", l.Metadata)
		}
	}
	s.proof(in.Policy)
	var b strings.Builder
	b.WriteString(head("bottlerocket", in, s.lacks, "Bottlerocket 1.16.0 or later: autoload."))
	if len(s.sysctls) > 0 {
		b.WriteString("\n[settings.kernel.sysctl]\n")
	}
	for _, c := range s.sysctls {
		fmt.Fprintf(&b, "%s = %s\n", tomlString(c.key.String()), tomlString(c.value))
	}
	for _, m := range s.modules {
		fmt.Fprintf(&b, "\n[settings.kernel.modules.%s]\nallowed = true\nautoload = true\n", m)
	}
	return Result{Text: []byte(b.String()), Lacks: s.lacks}, nil
}

// tomlString is a basic string of TOML: JSON's escapes are among its own.
func tomlString(s string) string {
	quoted, _ := json.Marshal(s) // of a string there is no error
	return string(quoted)
}
