package policy

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"nodegate/internal/sorted"
)

// Key is the path of a kernel parameter below /proc/sys, for example net/ipv4/ip_forward. A
// component may contain dots (net/ipv4/conf/eth0.100/forwarding). If globs are allowed, it may
// also contain the wildcards of path.Match. A key that begins with /sys/ is the path of an attribute there.
type Key string

// ParseKey accepts both spellings of sysctl(8) and sysctl.d(5). If the first separator is a dot, dots separate and a slash stands for a dot
// inside a component. If it is a slash, slashes separate and dots are literal.
func ParseKey(s string) (Key, error) {
	p := s
	if i := strings.IndexAny(s, "./"); i >= 0 && s[i] == '.' {
		p = swapSeparators(s)
	}
	if strings.HasPrefix(s, "/") {
		return "", fmt.Errorf("%q is an absolute path; write it relative to /proc/sys, for example net.ipv4.ip_forward", s)
	}
	if len(s) > 255 {
		return "", errors.New("the key must have at most 255 bytes")
	}
	parts := strings.Split(p, "/")
	for _, c := range parts {
		switch {
		case c == "":
			return "", fmt.Errorf("%q has an empty component; write for example net.ipv4.ip_forward", s)
		case c == "." || c == "..":
			return "", fmt.Errorf("%q has the component %q, which would leave /proc/sys", s, c)
		case strings.ContainsFunc(c, neverInParameter):
			i := strings.IndexFunc(s, neverInParameter)
			r, _ := utf8.DecodeRuneInString(s[i:])
			return "", fmt.Errorf("%q contains %U, %s; remove it", s, r, characterKind(r))
		}
	}
	if len(parts) < 2 {
		return "", fmt.Errorf("%q needs at least two components; write for example net.ipv4.ip_forward", s)
	}
	if _, err := path.Match(p, ""); err != nil {
		return "", fmt.Errorf("%q is not a valid glob: %w", s, err)
	}
	return Key(p), nil
}

// neverInParameter reports whether no parameter's name can have the character. A name may contain a link's name, which may
// have letters beyond ASCII.
func neverInParameter(c rune) bool { return unicode.IsSpace(c) || !unicode.IsGraphic(c) }

// String returns the key as sysctl(8) prints it, with dots between components and a slash for a dot inside a component.
func (k Key) String() string {
	if k.InSysfs() {
		return string(k)
	}
	return swapSeparators(string(k))
}

// swapSeparators replaces dots by slashes and slashes by dots.
func swapSeparators(s string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '/':
			return '.'
		case '.':
			return '/'
		}
		return r
	}, s)
}

// IsGlob reports whether the key is a pattern, which may match any number of parameters.
func (k Key) IsGlob() bool { return strings.ContainsAny(string(k), "*?[") }

// canonical returns one form for values that mean the same to the kernel. Ranges are sorted and joined, as the kernel prints
// them (proc_do_large_bitmap). Congestion control algorithms, which the kernel prints in the order of their modules, are
// sorted by name. Other values are returned unchanged.
func canonical(key Key, value string) string {
	if key == "net/ipv4/tcp_allowed_congestion_control" {
		return strings.Join(slices.Sorted(strings.FieldsSeq(value)), " ")
	}
	if key != "net/ipv4/ip_local_reserved_ports" && key != "kernel/watchdog_cpumask" {
		return value
	}
	type numbers struct{ first, last uint64 }
	var all []numbers
	for item := range strings.SplitSeq(value, ",") {
		first, last, isRange := strings.Cut(item, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 32)
		to, err2 := strconv.ParseUint(last, 10, 32)
		if err != nil || err2 != nil || from > to {
			return value
		}
		all = append(all, numbers{from, to})
	}
	sorted.By(all, func(a, b numbers) int { return cmp.Compare(a.first, b.first) })
	var words []string
	for i := 0; i < len(all); {
		n := all[i]
		for i++; i < len(all) && all[i].first <= n.last+1; i++ {
			n.last = max(n.last, all[i].last)
		}
		word := strconv.FormatUint(n.first, 10)
		if n.last > n.first {
			word = fmt.Sprintf("%d-%d", n.first, n.last)
		}
		words = append(words, word)
	}
	return strings.Join(words, ",")
}
