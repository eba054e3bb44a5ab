package config

import (
	"bytes"
	"regexp"
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
	return text, ofKernel().MatchString(name) && !commandParameter().MatchString(name)
}

// IsPolicy reports whether a file belongs to the installed policy.
func IsPolicy(name string) bool { return strings.HasPrefix(name, "/etc/nodegate/") }

var (
	ofKernel = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^/proc/sys/|^/proc/([^/]+/)?(stat|status|limits|comm|uid_map|cgroup|net/.*)$|` +
			`^/proc/(devices|filesystems|meminfo|modules|swaps|uptime|version|version_signature)$|^/sys/|^/etc/hostname$|` +
			`^(/usr)?/lib/modules/|^/etc/sysctl\.d/99-zz-nodegate\.conf$`)
	})
	// Variables of os-release that a report or a policy reads. Others are texts and URLs of a vendor.
	factsOfOS = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^(ID|ID_LIKE|VERSION_ID|PRETTY_NAME)=.*(\n|\z)`) })
	// Parameters whose value people write freely: a command line with arguments, or a name.
	commandParameter = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`/(core_pattern|domainname|hotplug|modprobe|poweroff_cmd)$`)
	})
	privateKey = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)
	})
)
