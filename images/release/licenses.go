package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// named is a file of a module.
type named struct{ name, text string }

// licenseTexts returns the license and notice files of a module in the binary.
func licenseTexts(m *debug.Module) ([]named, error) {
	dir, err := goList("-m", "-f", "{{.Dir}}", m.Path)
	if err == nil && dir == "" {
		err = fmt.Errorf("the sources of %s are not downloaded", m.Path)
	}
	if err != nil {
		return nil, err
	}
	var texts []named
	for _, pattern := range []string{"LICENSE*", "LICENCE*", "COPYING*", "NOTICE*"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			texts = append(texts, named{filepath.Base(f), strings.TrimSpace(string(text))})
		}
	}
	if texts == nil {
		return nil, fmt.Errorf("%s %s has no license file", m.Path, m.Version)
	}
	return texts, nil
}

// thirdPartyLicenses returns the license and notice files of all modules in the binary.
func thirdPartyLicenses(binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var all strings.Builder
	for _, m := range info.Deps {
		texts, err := licenseTexts(m)
		if err != nil {
			return nil, err
		}
		for _, t := range texts {
			fmt.Fprintf(&all, "%s %s, %s\n\n%s\n\n", m.Path, m.Version, t.name, t.text)
		}
	}
	return []byte(all.String()), nil
}
