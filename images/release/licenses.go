package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
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

// recognize returns the SPDX names of a module's licenses. An unknown license stops the release until a person has reviewed it.
func recognize(m *debug.Module, texts []named) ([]string, error) {
	var ids []string
	for _, t := range texts {
		text := strings.Join(strings.Fields(t.text), " ")
		for _, known := range []struct{ id, words, not string }{
			{"Apache-2.0", `Apache License,? Version 2\.0`, ""},
			{"MPL-2.0", `Mozilla Public License,? [Vv]ersion 2\.0`, ""},
			{"MIT", `Permission is hereby granted, free of charge`, ""},
			{"BSD-3-Clause", `Redistribution and use in source and binary forms.* Neither the name`, ""},
			{"BSD-2-Clause", `Redistribution and use in source and binary forms`, "Neither the name"},
		} {
			is := regexp.MustCompile(known.words).MatchString(text) && (known.not == "" || !strings.Contains(text, known.not))
			if is && !slices.Contains(ids, known.id) {
				ids = append(ids, known.id)
			}
		}
	}
	if ids == nil {
		return nil, fmt.Errorf("%s %s: its license is none of those that images/release/licenses.go knows", m.Path, m.Version)
	}
	slices.Sort(ids)
	return ids, nil
}

func licensesOf(ids ...string) []license {
	all := make([]license, len(ids))
	for i, id := range ids {
		all[i].License.ID = id
	}
	return all
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
