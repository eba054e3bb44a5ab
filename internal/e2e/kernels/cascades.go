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
	for _, dir := range []string{"abi", "debug", "dev", "fs", "kernel", "net", "user", "vm"} {
		paths := writable(dir, without)
		before := readAll(paths)
		for path, value := range readAll(paths) {
			if before[path] != value { // it changes without a write
				paths = slices.DeleteFunc(paths, func(p string) bool { return p == path })
			}
		}
		for _, path := range paths {
			reportMoved(path, paths)
		}
	}
}

// reportMoved writes other values to a parameter until one is accepted, reports the parameters that change, and restores all.
func reportMoved(path string, paths []string) {
	before := readAll(paths)
	p := &parameter{path: path}
	for _, value := range otherValues(before[path]) {
		if !p.write(value) {
			continue
		}
		now := readAll(paths)
		p.write(before[path])
		for other, value := range before {
			if now[other] == value {
				continue
			}
			if other != path {
				report("c %s %s", cascadeKey(path), cascadeKey(other))
			}
			(&parameter{path: other}).write(value)
		}
		if now[path] != before[path] {
			return
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
	for _, by := range []int64{1, -1, -2, 100, 1 << 20} {
		with := slices.Clone(fields)
		n, _ := strconv.ParseInt(fields[0], 10, 64)
		with[0] = strconv.FormatInt(n+by, 10)
		all = append(all, strings.Join(with, "\t"))
	}
	return all
}

// writable returns the parameters below a directory of /proc/sys that can be written and read. Of the interfaces it returns only lo.
func writable(dir string, without []string) []string {
	var all []string
	of := regexp.MustCompile(`/(?:conf|neigh)/([^/]+)/`)
	_ = filepath.WalkDir("/proc/sys/"+dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || slices.Contains(without, keyOf(path)) {
			return nil
		}
		link := of.FindStringSubmatch(path)
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o600 == 0o600 && (link == nil || slices.Contains([]string{"all", "default", "lo"}, link[1])) {
			all = append(all, path)
		}
		return nil
	})
	return all
}

// readAll returns the values of the parameters that can be read now.
func readAll(paths []string) map[string]string {
	all := map[string]string{}
	for _, path := range paths {
		if value, readable := (&parameter{path: path}).read(); readable {
			all[path] = value
		}
	}
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
