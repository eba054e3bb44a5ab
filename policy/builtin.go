package policy

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed builtin/*.hcl
var builtin embed.FS

// Builtins returns the names that Builtin knows.
func Builtins() []string {
	entries, err := fs.ReadDir(builtin, "builtin")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".hcl"))
	}
	return names
}

// Builtin returns the embedded policy of that name. The error lists the names that
// exist.
func Builtin(name string) (File, error) {
	text, err := builtin.ReadFile("builtin/" + name + ".hcl")
	if err != nil || strings.ContainsAny(name, "./") {
		return File{}, fmt.Errorf("there is no built-in policy %q; there is %s", name, strings.Join(Builtins(), ", "))
	}
	return File{Name: "builtin:" + name + ".hcl", Text: text}, nil
}
