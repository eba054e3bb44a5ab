package config

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// readFlags are the flags whose values checks read.
func readFlags() []string {
	return []string{
		// kubelet
		"address", "bootstrap-kubeconfig", "cert-dir", "cgroup-driver", "cloud-provider", "config", "config-dir", "container-runtime-endpoint",
		"fail-cgroupv1", "fail-swap-on", "feature-gates", "healthz-bind-address", "healthz-port", "image-service-endpoint",
		"kubeconfig", "node-ip", "port", "protect-kernel-defaults", "register-node", "resolv-conf", "root-dir", "rotate-certificates",
		// kube-proxy
		"conntrack-max-per-core", "conntrack-min", "ipvs-exclude-cidrs", "iptables-min-sync-period", "ipvs-min-sync-period",
		"nodeport-addresses", "proxy-mode",
		// k3s
		"kube-proxy-arg", "c",
	}
}

// knownWords are the words that a disclosed value may consist of, beside numbers, addresses and
// paths.
var knownWords = sync.OnceValue(func() []string {
	return append([]string{
		"true", "false", "yes", "no", "on", "off", "y", "n", "t", "f", "none", "None", "static", "Static", "systemd", "cgroupfs", "external",
		"aws", "azure", "gce", "openstack", "vsphere", "iptables", "ipvs", "nftables", "kernelspace", "userspace", "kube-proxy", "proxy",
		"LimitedSwap", "NoSwap", "UnlimitedSwap", "cpu", "memory", "ephemeral-storage", "pid", "memory.available", "nodefs.available",
		"nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "pid.available",
		"allocatableMemory.available", "strict-cpu-reservation", "full-pcpus-only", "distribute-cpus-across-numa", "align-by-socket",
		"distribute-cpus-across-cores", "prefer-align-cpus-by-uncorecache", "prefer-closest-numa-nodes", "max-allowable-numa-nodes",
		"best-effort", "restricted", "single-numa-node", "pods", "kube-reserved", "system-reserved", "kube-reserved-compressible",
		"system-reserved-compressible", "Webhook", "AlwaysAllow", "CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions",
		"TopologyManagerPolicyAlphaOptions", "TopologyManagerPolicyBetaOptions", "AllAlpha", "AllBeta", "GracefulNodeShutdown",
		"AllowServiceExternalIPs", "NodeSwap", "CPUManager", "MemoryManager", "InPlacePodVerticalScaling", "DynamicResourceAllocation",
		"KubeletConfiguration", "KubeProxyConfiguration", "CredentialProviderConfig", "Config", "primary", "ipv4", "ipv6", "persistent",
	}, readFlags()...)
})

// plainValue returns a value with a placeholder for each part that is neither a number, a quantity,
// an address, the path of a file, the name of a sysctl, a Kubernetes API or label, nor a known
// word.
func plainValue(value string, hide func(string) string) string {
	if isPlain(value) {
		return value
	}
	const between = ",=<; \t"
	var b strings.Builder
	for value != "" {
		i := strings.IndexAny(value, between)
		if i < 0 {
			i = len(value)
		}
		if part := value[:i]; isPlain(part) {
			b.WriteString(part)
		} else {
			b.WriteString(hide(part))
		}
		if value = value[i:]; value != "" {
			b.WriteByte(value[0])
			value = value[1:]
		}
	}
	return b.String()
}

func isPlain(part string) bool {
	if part == "" || slices.Contains(knownWords(), part) {
		return true
	}
	if _, err := netip.ParseAddr(strings.Trim(part, "[]")); err == nil {
		return !strings.Contains(part, "%") // a zone may be any text
	}
	if _, err := netip.ParsePrefix(part); err == nil {
		return true
	}
	if regexp.MustCompile(`^[0-9]+:(memory|hugepages-[0-9]+[KMG]i)$`).MatchString(part) { // of --reserved-memory
		return true
	}
	return isPlainPath(part) || plainPattern().MatchString(part)
}

// plainPattern matches numbers with a unit, ranges, durations, sysctls, API versions and the labels
// that Kubernetes reserves.
var plainPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([+-]?[0-9.]+([numkMGTPE]|[KMGTPE]i|%%?|[eE][+-]?[0-9]+)?|[0-9]+-[0-9]+|-?([0-9.]+(ns|us|µs|ms|s|m|h))+` +
		`|(net|fs|kernel|user|vm)[./][a-z0-9_./*-]+|([a-z0-9.-]+\.)?k8s\.io/v[0-9][a-z0-9]*|v1` +
		`|([a-z0-9.-]+\.)?(kubernetes|k8s)\.io/[A-Za-z0-9._-]+)$`)
})

// isPlainPath reports whether the value of an option that names a file is an absolute path.
func isPlainPath(value string) bool {
	return plainPath().MatchString(value)
}

var plainPath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(unix:(//)?)?(%[A-Za-z])?/[\w./@:+%-]*$`) })

// isPath reports whether a word is the path of a file in a directory of the system. A path in
// another directory may be the path of a URL, which may be a secret.
func isPath(word string) bool {
	return systemPath().MatchString(word)
}

var systemPath = sync.OnceValue(func() *regexp.Regexp {
	const top = `bin|boot|data|dev|etc|home|lib|lib64|mnt|opt|proc|root|run|sbin|snap|srv|sys|tmp|usr|var`
	return regexp.MustCompile(`^(unix://)?(%[A-Z])?/((` + top + `)(/[\w.@:+%-]*)*)?$`)
})

// disclosedWords replaces, in the arguments of a command line, everything but the names of long
// flags and the values that checks read.
func disclosedWords(words []string, hide func(string) string) {
	name := regexp.MustCompile(`^(--[A-Za-z][A-Za-z0-9_-]{0,60}|-c)$`)
	for i := 0; i < len(words); i++ {
		flag, value, assigned := strings.Cut(words[i], "=")
		if !name.MatchString(flag) {
			words[i] = plainWord(words[i], hide)
			continue
		}
		read := slices.Contains(readFlags(), strings.ReplaceAll(strings.TrimLeft(flag, "-"), "_", "-"))
		switch {
		case assigned && read:
			words[i] = flag + "=" + plainValue(value, hide)
		case assigned:
			words[i] = flag + "=" + hide(value)
		case read && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-"):
			i++
			words[i] = plainValue(words[i], hide)
		case i+1 < len(words) && !strings.HasPrefix(words[i+1], "-"):
			i++
			words[i] = hide(words[i])
		}
	}
}

// plainWord keeps the words that change the meaning of a command line: the path of a program or a
// file, a sub-command, a variable.
func plainWord(word string, hide func(string) string) string {
	if isPath(strings.TrimLeft(word, "+-:!")) || slices.Contains([]string{"kube-proxy", "proxy", "kubelet", "server", "agent", "apply",
		"gate"}, word) ||
		regexp.MustCompile(`^\$(\w+|\{\w+\})$`).MatchString(word) {
		return word
	}
	return hide(word)
}
