package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// File is one policy file's name and text.
type File struct {
	Name string
	Text []byte
}

// MaxFileSize is the most bytes that a policy file may have. People write policies;
// anything larger is not one.
const MaxFileSize = 1 << 20

// ReadFiles reads the named files, and every *.hcl and *.hcl.json file of the
// named directories in the order of their names. read reads one file, at most
// limit bytes of it. The error joins one message for each path that cannot be read.
func ReadFiles(paths []string, read func(name string, limit int64) ([]byte, error)) ([]File, error) {
	var files []File
	var errs []error
	for _, p := range paths {
		names, err := expand(p)
		if err != nil {
			errs = append(errs, fmt.Errorf("reading policy: %w", err))
		}
		for _, n := range names {
			text, err := read(n, MaxFileSize)
			if err != nil {
				errs = append(errs, fmt.Errorf("reading policy: %w", err))
				continue
			}
			files = append(files, File{n, text})
		}
	}
	return files, errors.Join(errs...)
}

// expand returns the path itself, or the policy files in it where it is a directory.
func expand(p string) ([]string, error) {
	info, err := os.Stat(p)
	if err != nil || !info.IsDir() {
		return []string{p}, nil
	}
	entries, err := os.ReadDir(p)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if IsPolicyFile(e.Name()) {
			names = append(names, filepath.Join(p, e.Name()))
		}
	}
	if names == nil {
		return nil, fmt.Errorf("%s: the directory has no *.hcl file; put one there, or name a file", p)
	}
	return names, nil
}

// IsPolicyFile reports whether the name of a file in a directory is a policy's. A
// hidden file is none: editors and installers keep unfinished files there.
func IsPolicyFile(name string) bool {
	return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".hcl") || strings.HasSuffix(name, ".hcl.json"))
}
