package policy

import "strings"

// File is one policy file's name and text.
type File struct {
	Name string
	Text []byte
}

// MaxFileSize is the most bytes that a policy file may have. People write policies;
// anything larger is not one.
const MaxFileSize = 1 << 20

// IsPolicyFile reports whether the name of a file in a directory is a policy's. A
// hidden file is none: editors and installers keep unfinished files there.
func IsPolicyFile(name string) bool {
	return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".hcl") || strings.HasSuffix(name, ".hcl.json"))
}
