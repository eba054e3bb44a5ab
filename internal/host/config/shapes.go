package config

import (
	_ "embed"
	"net/netip"
	"regexp"
	"strings"
	"sync"
)

// shownWords are the names of settings that checks read, and the words that their values may be made of.
//
//go:embed shown_words.txt
var shownWords string

var knownWords = sync.OnceValue(func() map[string]bool { return wordSet(shownWords) })

func wordSet(list string) map[string]bool {
	all := map[string]bool{}
	for word := range strings.FieldsSeq(list) {
		all[word] = true
	}
	return all
}

// IsKnown reports whether a setting or flag is one that checks read.
func IsKnown(name string) bool {
	bare := strings.TrimLeft(name, "-+:!@*")
	if strings.HasPrefix(name, "--") {
		bare = strings.ReplaceAll(bare, "_", "-")
	}
	_, property, _ := strings.Cut(bare, ":") // of udev's database
	return knownWords()[bare] || knownWords()[property] || isSysctl(bare)
}

var (
	sysctlName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(abi|crypto|debug|dev|fs|kernel|net|sunrpc|user|vm|xpfs)[./][\w./*?\[\]@:-]+$`)
	})
	systemPath = sync.OnceValue(func() *regexp.Regexp {
		const top = `bin|boot|data|dev|etc|home|lib|lib64|mnt|opt|proc|root|run|sbin|snap|srv|sys|tmp|usr|var`
		return regexp.MustCompile(`^(unix:(//)?)?(/|(/(` + top + `)|%[a-zA-Z])(/[\w.@:+%*?-]*)*)$`)
	})
	// Numbers with a unit, ranges, durations, times, Kubernetes' APIs and labels, units of systemd, links, variables in a command line.
	shape = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([+-]?[0-9.]+([numkMGTPE]|[KMGTPE]i|%%?|[eE][+-]?[0-9]+)?|[0-9]+-[0-9]+|-?([0-9.]+(ns|us|µs|ms|s|m|h))+` +
			`|shared:[0-9]+|[0-9]+:(memory|hugepages-[0-9]+[KMG]i)|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]{5})` +
			`|([a-z0-9.-]+\.)?k8s\.io/v[0-9][a-z0-9]*|v1|([a-z0-9.-]+\.)?(kubernetes|k8s)\.io/[A-Za-z0-9._-]+` +
			`|[\w@.%:\\-]+\.(service|target|mount|automount|socket|slice|timer|path|swap|scope|device)` +
			`|(except:)?(interface-name:|driver:)?(eth|en[iopsx]?|ib|wl|ww|veth|lxc|cali|cni|flannel|flannel-v6|` +
			`vxlan|vxlan(-v6)?\.calico|tunl|cilium_?|bond|br|` +
			`br-int|cbr|docker|dummy|kube-?|kube-ipvs|` +
			`kube-bridge|nodelocaldns|ovn-?|ovn-k8s-?|genev_sys_?|antrea-gw|weave|azv|gke|nerdctl|podman|virbr|tailscale|wg|lo)` +
			`[0-9.*?_-]*([nps][0-9*?]+)*|\*+|\$[A-Z][A-Z0-9_]*|--?[a-zA-Z])$`)
	})
)

// isSysctl reports whether a key is in one of the kernel's directories of parameters.
func isSysctl(key string) bool { return sysctlName().MatchString(key) }

// isPath reports whether a word is the path of a file in a directory of the system. A path in another directory may belong to a URL.
func isPath(word string) bool { return systemPath().MatchString(word) }

// isShown reports whether a word may leave: it is known, or its shape lacks a place for a secret.
func isShown(t string) bool {
	bare := strings.TrimLeft(t, "-+:@*")
	switch {
	case bare == "" || IsKnown(strings.TrimRight(t, ".:")) || shape().MatchString(t) || isPath(bare):
		return true
	}
	if _, err := netip.ParsePrefix(t); err == nil {
		return true
	}
	_, zone, _ := strings.Cut(t, "%") // which may be any text
	_, err := netip.ParseAddr(t)
	return err == nil && (zone == "" || shape().MatchString(zone))
}
