package config

import "strings"

// specifiers replaces, in a word of kubelet.service, those specifiers of systemd.unit(5) that are
// the same on every machine. %H and other machine-specific ones stay unchanged.
var specifiers = strings.NewReplacer("%%", "%", "%S", "/var/lib", "%C", "/var/cache", "%L", "/var/log", "%t", "/run", "%E", "/etc",
	"%T", "/tmp", "%V", "/var/tmp", "%n", "kubelet.service", "%N", "kubelet", "%p", "kubelet")
