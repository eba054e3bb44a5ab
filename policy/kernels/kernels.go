// Package kernels lists the modules, link kinds, offloads and parameters of the kernels of Debian 11, 12 and 13, as recorded from running
// kernels by `go run ./internal/e2e/kernels`. It serves `nodegate lint`; nothing on the boot path reads it.
package kernels

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
)

//go:embed catalogue.gz
var recorded []byte

// Catalogue holds the names that at least one of the kernels knows.
type Catalogue struct {
	Releases, Modules, Kinds, Offloads []string
	Parameters                         []string // below /proc/sys; * stands for an interface
	Probed                             []string // the releases whose parameters were tried with values
	types                              map[string]string
	domains                            map[string][]Domain
	owners                             map[string][]string // parameter -> modules that bring it
	needs                              map[string][]string // module -> modules that bring parameters and are loaded with it
}

// perfWatchdog is read-only on a machine without a performance monitoring unit, such as the recorder's, and takes 0 and 1 on others
// (kernel/watchdog.c). Its record describes the machine, not the kernel.
const perfWatchdog = "kernel/nmi_watchdog"

// Read decodes the catalogue.
func Read() (*Catalogue, error) {
	z, err := gzip.NewReader(bytes.NewReader(recorded))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	// These kinds lack a module alias, so the recorder does not find them.
	c := &Catalogue{types: map[string]string{}, domains: map[string][]Domain{}, owners: map[string][]string{}, needs: map[string][]string{},
		Kinds: []string{"tun", "openvswitch", "amt", "bareudp", "dsa", "netdevsim", "ovpn"}}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		switch words[0] {
		case "r":
			c.Releases = append(c.Releases, words[1])
		case "m":
			c.Modules = append(c.Modules, words[1])
		case "k":
			c.Kinds = append(c.Kinds, words[1])
		case "o":
			c.Offloads = append(c.Offloads, words[1])
		case "s":
			c.Parameters = append(c.Parameters, words[1])
			c.types[words[1]] = words[2]
		case "p":
			c.Probed = append(c.Probed, words[1])
		case "v":
			if words[1] == perfWatchdog {
				continue
			}
			for _, digit := range words[3] { // the numbers of the releases
				domain := Domain{versionOf(c.Probed[digit-'0']), strings.Split(words[2], ";"), words[1]}
				c.domains[words[1]] = append(c.domains[words[1]], domain)
			}
		case "b":
			c.owners[words[1]] = strings.Split(words[2], ",")
		case "d":
			c.needs[words[1]] = strings.Split(words[2], ",")
		}
	}
	return c, nil
}

// Parameter reports whether a kernel has a parameter with this path below /proc/sys, or one that matches a pattern. numbers lists how many
// numbers its value may have. It is empty for a string, and for a pattern that matches parameters of different types.
func (c *Catalogue) Parameter(key string) (numbers []int, known bool) {
	name := perInterface(key)
	typ, known := c.types[name]
	if !known && strings.ContainsAny(key, "*?[") {
		for _, p := range c.Parameters {
			if ok, err := path.Match(name, p); err != nil || !ok {
				continue
			}
			if known && c.types[p] != typ {
				return nil, true
			}
			typ, known = c.types[p], true
		}
	}
	for n := range strings.SplitSeq(typ, ",") {
		if n, err := strconv.Atoi(n); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers, known
}

// Matching returns the recorded parameters that a glob matches.
func (c *Catalogue) Matching(glob string) []string {
	var all []string
	for _, p := range c.Parameters {
		if matches, _ := path.Match(perInterface(glob), p); matches {
			all = append(all, p)
		}
	}
	return all
}

// perInterface replaces the name of an interface by "*".
func perInterface(key string) string {
	parts := strings.Split(key, "/")
	if len(parts) > 4 && parts[0] == "net" && (parts[2] == "conf" || parts[2] == "neigh") {
		parts[3] = "*"
	}
	return strings.Join(parts, "/")
}

// Brings returns the one of the modules that registers a parameter when it is loaded, itself or by a module that it needs, or "".
func (c *Catalogue) Brings(key string, modules []string) string {
	for name, owners := range c.owners {
		if matches, _ := path.Match(perInterface(key), name); !matches && name != perInterface(key) {
			continue
		}
		for _, m := range modules {
			needed := func(owner string) bool { return owner == m || slices.Contains(c.needs[m], owner) }
			if slices.ContainsFunc(owners, needed) {
				return m
			}
		}
	}
	return ""
}
