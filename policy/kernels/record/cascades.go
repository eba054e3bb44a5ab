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
		before := readWritable(dir, without)
		for path, value := range readWritable(dir, without) {
			if before[path] != value {
				without = append(without, keyOf(path)) // it changes without a write
			}
		}
		for path, was := range before {
			if !slices.Contains(without, keyOf(path)) {
				reportMoved(path, was, func() map[string]string { return readWritable(dir, without) })
			}
		}
	}
}

// reportMoved writes other values to a parameter until one is accepted, reports the parameters that change, and restores all.
func reportMoved(path, was string, read func() map[string]string) {
	p := &parameter{path: path}
	before := read()
	for _, value := range otherValues(was) {
		if !p.write(value) {
			continue
		}
		now := read()
		p.write(was)
		for other, value := range before {
			if now[other] == value {
				continue
			}
			if other != path {
				report("c %s %s", cascadeKey(path), cascadeKey(other))
			}
			(&parameter{path: other}).write(value)
		}
		if now[path] != was {
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
	for _, by := range []int64{1, -1, -2, 100} {
		with := slices.Clone(fields)
		n, _ := strconv.ParseInt(fields[0], 10, 64)
		with[0] = strconv.FormatInt(n+by, 10)
		all = append(all, strings.Join(with, "\t"))
	}
	return all
}

// readWritable returns the values of the parameters below a directory of /proc/sys that can be written and read, by their paths. Of the
// interfaces it reads only lo.
func readWritable(dir string, without []string) map[string]string {
	all := map[string]string{}
	other := regexp.MustCompile(`/(?:conf|neigh)/([^/]+)/`)
	_ = filepath.WalkDir("/proc/sys/"+dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || slices.Contains(without, keyOf(path)) {
			return nil
		}
		if of := other.FindStringSubmatch(path); of != nil && !slices.Contains([]string{"all", "default", "lo"}, of[1]) {
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
