package config

import "strings"

// Specifiers replaces, in a word of a unit, those specifiers of systemd.unit(5) that are the same on
// every machine. %H and other machine-specific ones stay unchanged.
func Specifiers(unit string) *strings.Replacer {
	base := unit[:max(strings.LastIndexByte(unit, '.'), 0)]
	prefix, instance, _ := strings.Cut(base, "@")
	return strings.NewReplacer("%%", "%", "%S", "/var/lib", "%C", "/var/cache", "%L", "/var/log", "%t", "/run", "%E", "/etc",
		"%T", "/tmp", "%V", "/var/tmp", "%n", unit, "%N", base, "%p", prefix, "%i", instance)
}
