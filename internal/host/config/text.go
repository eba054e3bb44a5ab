package config

import (
	"bytes"
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Kept returns the part of a file that a snapshot holds: the kernel's own words, the facts of os-release, and the policy without private
// keys, which a replay evaluates. It returns false for any other file: people write its text.
func Kept(name string, text []byte) ([]byte, bool) {
	switch {
	case strings.HasSuffix(name, "/os-release"):
		return bytes.Join(factsOfOS().FindAll(text, -1), nil), true
	case IsPolicy(name):
		return privateKey().ReplaceAll(text, []byte("(left out)")), true
	}
	return text, isOfKernel(name)
}

func isOfKernel(name string) bool {
	of, isProc := strings.CutPrefix(name, "/proc/")
	switch {
	case strings.HasPrefix(of, "sys/"):
		// Values that people write freely: a command line with arguments, or a name.
		return !slices.Contains([]string{"core_pattern", "domainname", "hotplug", "modprobe", "poweroff_cmd"}, path.Base(of))
	case isProc:
		_, ofProcess, _ := strings.Cut(of, "/")
		return slices.Contains([]string{"devices", "filesystems", "meminfo", "modules", "swaps", "uptime", "version", "version_signature"}, of) ||
			slices.Contains([]string{"stat", "status", "limits", "comm", "uid_map", "cgroup"}, cmp.Or(ofProcess, of)) ||
			strings.HasPrefix(of, "net/") || strings.HasPrefix(ofProcess, "net/")
	}
	return strings.HasPrefix(name, "/sys/") || strings.HasPrefix(strings.TrimPrefix(name, "/usr"), "/lib/modules/") ||
		name == "/etc/hostname" || name == "/etc/sysctl.d/99-zz-nodegate.conf"
}

// IsPolicy reports whether a file belongs to the installed policy.
func IsPolicy(name string) bool { return strings.HasPrefix(name, "/etc/nodegate/") }

var (
	// Variables of os-release that a report or a policy reads. Others are texts and URLs of a vendor.
	factsOfOS  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^(ID|ID_LIKE|VERSION_ID|PRETTY_NAME)=.*(\n|\z)`) })
	privateKey = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)
	})
)
