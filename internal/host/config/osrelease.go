package config

import (
	"slices"
	"strings"
)

// OSRelease has the variables of os-release(5).
type OSRelease map[string]string

// ParseOSRelease reads a file of os-release(5) with the rules for a unit's variables, as systemd does
// (parse_os_release in its src/basic/os-util.c).
func ParseOSRelease(text []byte) OSRelease { return environmentFile(string(text)) }

// Like reports whether the distribution is one of these, or derives from one.
func (o OSRelease) Like(ids ...string) bool {
	if slices.Contains(ids, o["ID"]) {
		return true
	}
	return slices.ContainsFunc(strings.Fields(o["ID_LIKE"]), func(id string) bool { return slices.Contains(ids, id) })
}
