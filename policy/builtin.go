package policy

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed builtin/*.hcl
var builtin embed.FS

// File is one policy file's name and text.
type File struct {
	Name string
	Text []byte
	own  bool // built in, so it needs no protection against hostile input
}

// MaxFileSize limits the size in bytes of a policy file, and of all files of a policy together. Policies are written by
// people, so a larger file is not a policy. The parser uses 400 times as much memory as the file has bytes.
const MaxFileSize = 128 << 10

// IsPolicyFile reports whether a file in a policy directory is a policy, by its name. Hidden
// files are ignored, because editors and installers keep unfinished files under such names.
func IsPolicyFile(name string) bool {
	return !strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".hcl")
}

// Builtins returns the names of the built-in policies.
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

// Builtin returns the built-in policy of that name. The error for an unknown name lists the known ones.
func Builtin(name string) (File, error) {
	text, err := builtin.ReadFile("builtin/" + name + ".hcl")
	if err != nil || strings.ContainsAny(name, "./") {
		return File{}, fmt.Errorf("unknown built-in policy %q; known policies: %s", name, strings.Join(Builtins(), ", "))
	}
	return File{Name: "builtin:" + name + ".hcl", Text: text, own: true}, nil
}
