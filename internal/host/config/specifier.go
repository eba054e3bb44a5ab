package config

import "strings"

// specifiers replaces those of systemd.unit(5) that are the same on every machine, in a word of kubelet.service. %H and others that are not
// stay as they are.
var specifiers = strings.NewReplacer("%%", "%", "%S", "/var/lib", "%C", "/var/cache", "%L", "/var/log", "%t", "/run", "%E", "/etc",
	"%T", "/tmp", "%V", "/var/tmp", "%n", "kubelet.service", "%N", "kubelet", "%p", "kubelet")
