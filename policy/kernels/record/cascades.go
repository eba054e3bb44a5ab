package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"nodegate/policy/kernels"
)

// reportCascades reports "c KEY OTHER" for each parameter that changes when another one is written. "*" stands for an interface, which is
// the same one in both.
func reportCascades() {
	deadly, _ := os.ReadFile("/deadly")
	without := append(strings.Fields(string(deadly)), ofThisMachine()...)
	before := readWritable()
	if later := readWritable(); true { // not those that change without a write
		for path, value := range before {
			if later[path] != value {
				delete(before, path)
			}
		}
	}
	for path, was := range before {
		if slices.Contains(without, keyOf(path)) {
			continue
		}
		p := &parameter{path: path}
		for _, value := range otherValues(was) {
			if !p.write(value) {
				continue
			}
			now := readWritable()
			p.write(was)
			for other, value := range before {
				if other != path && now[other] != value {
					report("c %s %s", cascadeKey(path), cascadeKey(other))
				}
			}
			for range 2 { // some depend on each other
				for other, value := range before {
					if now[other] != value {
						(&parameter{path: other}).write(value)
					}
				}
			}
			if now[path] != was {
				break
			}
		}
	}
}

// otherValues returns values to try that are not far from the present one.
func otherValues(was string) []string {
	fields := strings.Fields(was)
	if len(fields) == 0 || slices.ContainsFunc(fields, notNumber) {
		return slices.DeleteFunc(kernels.TriedWords(), func(w string) bool { return w == was })
	}
	var all []string
	for _, by := range []int64{1, -1, -2, 100} {
		with := slices.Clone(fields)
		n, _ := strconv.ParseInt(fields[0], 10, 64)
		with[0] = strconv.FormatInt(n+by, 10)
		all = append(all, strings.Join(with, "\t"))
	}
	return all
}

// readWritable returns the values of the parameters that can be written and read, by their paths.
func readWritable() map[string]string {
	all := map[string]string{}
	_ = filepath.WalkDir("/proc/sys", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err != nil || info.Mode().Perm()&0o600 != 0o600 {
			return nil
		}
		if value, readable := (&parameter{path: path}).read(); readable {
			all[path] = value
		}
		return nil
	})
	return all
}

// cascadeKey returns a parameter's path below /proc/sys, with * in place of an interface's name, but not of all and default.
func cascadeKey(path string) string {
	key := strings.TrimPrefix(path, "/proc/sys/")
	parts := regexp.MustCompile(`^net/ipv[46]/(?:conf|neigh)/([^/]+)/`).FindStringSubmatch(key)
	if parts == nil || parts[1] == "all" || parts[1] == "default" {
		return key
	}
	return keyOf(path)
}
