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
	own  bool // built in: nobody can have made it to hurt
}

// MaxFileSize is the most bytes that a policy file may have, and all of a policy's together. People write policies;
// anything larger is not one. The parser takes 400 times as much memory.
const MaxFileSize = 128 << 10

// IsPolicyFile reports whether the name of a file in a directory is a policy's. A
// hidden file is none: editors and installers keep unfinished files there.
func IsPolicyFile(name string) bool {
	return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".hcl") || strings.HasSuffix(name, ".hcl.json"))
}

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
	return File{Name: "builtin:" + name + ".hcl", Text: text, own: true}, nil
}
