package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

// mark begins each line of the guest's report, to distinguish it from messages of the kernel.
const mark = "RECORDED "

func report(format string, args ...any) { fmt.Printf(mark+format+"\n", args...) }

// guest is the first process of a recorded kernel. It loads the modules, reports parameters and
// offloads, and powers off. To find the type of a parameter it writes invalid values to it.
func guest() {
	for _, dir := range []string{"/proc", "/sys"} {
		_ = os.Mkdir(dir, 0o755)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		report("! mounting /proc: %v", err)
	}
	list, err := os.ReadFile("/list")
	if err != nil {
		report("! %v", err)
	}
	probing, _ := os.ReadFile("/after")
	known := parameters()
	for name := range strings.FieldsSeq(string(list)) {
		if err := loadModule("/modules/" + name); err != nil {
			report("! %s: %v", name, err)
		}
		for key := range parameters() {
			if !known[key] {
				known[key] = true
				report("b %s %s", key, moduleName(name))
			}
		}
	}
	if len(probing) == 0 {
		reportParameters()
		reportFeatures()
	}
	if _, err := os.Stat("/try"); err == nil {
		probeAll(string(probing))
		reportNamespaced()
		reportCascades()
	}
	report("end")
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func loadModule(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// reportParameters reports each parameter once, with * in place of an interface's name, and the
// number of numbers in its value: "-" for a string and for a value that cannot be read.
func reportParameters() {
	reported := map[string]bool{}
	err := filepath.WalkDir("/proc/sys", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		line := "s " + keyOf(path) + " " + typeOf(path)
		if !reported[line] {
			reported[line] = true
			report("%s", line)
		}
		return nil
	})
	if err != nil {
		report("! %v", err)
	}
}

// keyOf returns a parameter's path below /proc/sys, with * in place of an interface's name.
func keyOf(path string) string {
	link := regexp.MustCompile(`^(net/(?:ipv4|ipv6|mpls|decnet)/(?:conf|neigh))/[^/]+/`)
	return link.ReplaceAllString(strings.TrimPrefix(path, "/proc/sys/"), "$1/*/")
}

// parameters returns the keys of all parameters.
func parameters() map[string]bool {
	all := map[string]bool{}
	_ = filepath.WalkDir("/proc/sys", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all[keyOf(path)] = true
		}
		return nil
	})
	return all
}

// typeOf distinguishes numbers from strings that only look like numbers, by writing values that are not numbers: a mask accepts "a", and a
// list of CPUs accepts "0-0". A parameter that accepts "a" and keeps its value ignores invalid input, and is a number.
func typeOf(path string) string {
	read := func() (string, error) {
		b, err := os.ReadFile(path)
		return strings.Join(strings.Fields(string(b)), " "), err
	}
	was, err := read()
	fields := strings.Fields(was)
	if err != nil || len(fields) == 0 || slices.ContainsFunc(fields, notNumber) {
		return "-"
	}
	accepts := func(text string) bool {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return false
		}
		defer f.Close()
		_, err = f.WriteString(text)
		return err == nil
	}
	if accepts("a") {
		if now, err := read(); err != nil || now != was {
			return "-"
		}
	} else if accepts("0-0") {
		return "-"
	}
	return strconv.Itoa(len(fields))
}

func notNumber(s string) bool {
	_, err := strconv.ParseInt(s, 10, 64)
	_, unsigned := strconv.ParseUint(s, 10, 64)
	return err != nil && unsigned != nil
}

func reportFeatures() {
	e, err := ethtool.NewEthtool()
	if err != nil {
		report("! ethtool: %v", err)
		return
	}
	defer e.Close()
	names, err := e.FeatureNames("lo")
	if err != nil {
		report("! features: %v", err)
	}
	for name := range names {
		report("o %s", name)
	}
}
