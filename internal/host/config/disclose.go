package config

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// Kind is the format in which checks parse a file. It decides which of the file's values a snapshot
// holds: those that checks use. A file of kind Withheld is recorded without content.
type Kind int

// The kinds of files. Whole files are world-readable on every machine and have no place for a
// secret.
const (
	Withheld Kind = iota
	Whole
	ProcessArguments
	KernelArguments
	SystemdUnit
	Variables
	NetworkConfig
	NetworkManagerConfig
	TunedProfile
	TunedProfiles
	ModprobeLines
	SysctlLines
	MountTable
	UdevRules
	UdevDatabase
	ResolvConf
	KubeletConfig
	KubeProxyConfig
	K3sConfig
	Kubeconfig
	CNIConfig
	Certificate
	ContainerLog
	PolicyFile
	TraitsOnly
	ZramConfig
	FlannelSubnet
)

// As returns files that a recording treats as being of a kind. Callers need it for a file whose
// path is in another file: the path alone does not determine the kind.
func As(files Files, kind Kind) Files {
	if r, records := files.(interface{ As(kind Kind) Files }); records {
		return r.As(kind)
	}
	return files
}

// Discloser decides what a snapshot holds of the files of one machine. It replaces each value that
// is not on the list of a file's kind by a numbered placeholder. Equal values have equal
// placeholders, so a file names the same thing as another one still.
type Discloser struct {
	mu     sync.Mutex
	number map[string]int
	values []string
}

const placeholder = "left-out"

// Hide returns the placeholder of a value, and the value itself if it is empty. A leading hyphen
// remains, because it decides how the words of a command line are read.
func (d *Discloser) Hide(value string) string {
	if rest, is := strings.CutPrefix(value, "-"); is {
		return "-" + d.Hide(rest)
	}
	if value == "" {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n, known := d.number[value]
	if !known {
		if d.number == nil {
			d.number = map[string]int{}
		}
		d.values = append(d.values, value)
		n = len(d.values)
		d.number[value] = n
	}
	return fmt.Sprintf("%s-%d", placeholder, n)
}

// Reveal returns text with the values in place of their placeholders: the machine's own programs
// and files need them.
func (d *Discloser) Reveal(text string) string {
	if !strings.Contains(text, placeholder) {
		return text
	}
	return regexp.MustCompile(placeholder+`-[0-9]+`).ReplaceAllStringFunc(text, func(found string) string {
		d.mu.Lock()
		defer d.mu.Unlock()
		n := 0
		if _, err := fmt.Sscanf(found, placeholder+"-%d", &n); err != nil || n < 1 || n > len(d.values) {
			return found
		}
		return d.values[n-1]
	})
}

// Disclose returns what a snapshot holds of a file. It returns false for a file that no filter
// covers.
func (d *Discloser) Disclose(kind Kind, name string, text []byte) ([]byte, bool) {
	if kind == Withheld {
		kind = KindOf(name)
	}
	if len(text) == 0 {
		return text, true
	}
	shown := d.disclose(kind, string(text))
	return []byte(shown), kind != Withheld
}

func (d *Discloser) disclose(kind Kind, text string) string {
	switch kind {
	case Whole:
		return text
	case ProcessArguments:
		return discloseProcess(text)
	case KernelArguments:
		return kernelArguments(text)
	case SystemdUnit:
		return discloseINI(text, d.Hide, d.unitValue)
	case Variables:
		return d.variables(text)
	case ZramConfig:
		return discloseINI(text, d.Hide, func(_, _, value string) string { return plainValue(value, d.Hide) })
	case NetworkConfig:
		return discloseINI(text, d.Hide, d.networkValue)
	case NetworkManagerConfig:
		return discloseINI(text, d.Hide, d.networkManagerValue)
	case TunedProfile:
		return d.tunedText(text)
	case TunedProfiles:
		return d.profileNames(text)
	case ModprobeLines:
		return joinedLines(text, d.modprobeLine)
	case SysctlLines:
		return d.sysctlText(text)
	case FlannelSubnet:
		return eachLine(text, flannelLine)
	case MountTable:
		return eachLine(text, d.mountLine)
	case UdevRules:
		return joinedLines(text, d.udevLine)
	case UdevDatabase:
		return udevProperties(text)
	case ResolvConf:
		return resolvers(text)
	case ContainerLog:
		return containerLog(text)
	case PolicyFile:
		return string(WithoutSecrets([]byte(text)))
	case TraitsOnly:
		return traitsOnly(text)
	}
	return string(d.discloseTree(kind, []byte(text)))
}

func (d *Discloser) discloseTree(kind Kind, text []byte) []byte {
	switch kind {
	case KubeletConfig:
		return discloseYAML(text, kubeletFields(), d.plain)
	case KubeProxyConfig:
		return d.kubeProxy(text)
	case K3sConfig:
		return discloseYAML(text, []string{"kube-proxy-arg", "kube-proxy-arg.[]", "kube-proxy-arg+", "kube-proxy-arg+.[]"}, d.k3sArgument)
	case Kubeconfig:
		return discloseYAML(text, kubeconfigFields(), d.kubeconfigField)
	case CNIConfig:
		return discloseJSON(text, []string{"name", "type", "plugins.[].type"}, d.networkName)
	case Certificate:
		return certificates(text)
	}
	return nil
}

// pathKind is a pattern of paths, and what is there.
type pathKind struct {
	pattern *regexp.Regexp
	kind    Kind
}

// pathKinds returns the kinds of the files with fixed paths; the first pattern that matches
// decides.
var pathKinds = sync.OnceValue(func() []pathKind {
	var all []pathKind
	for _, k := range []struct {
		pattern string
		kind    Kind
	}{
		{`^/proc/cmdline$`, KernelArguments},
		{`^/proc/[^/]+/cmdline$`, ProcessArguments},
		{`^/proc/([^/]+/)?mounts$`, MountTable},
		{`^/proc/[^/]+/(stat|limits|comm|uid_map|cgroup|net/.*|sys/.*)$`, Whole},
		{`^/proc/(sys|net)/`, Whole},
		{`^/proc/(devices|filesystems|meminfo|modules|swaps|uptime|version|version_signature)$`, Whole},
		{`^/sys/`, Whole},
		{`^(/etc|/usr/lib)/os-release$`, Whole},
		{`^/etc/hostname$`, Whole},
		{`^(/usr)?/lib/modules/`, Whole},
		{`/sysctl\.d/[^/]+$|^/etc/sysctl\.conf$`, SysctlLines},
		{`/modprobe\.d/[^/]+$`, ModprobeLines},
		{`/systemd/system/`, SystemdUnit},
		{`/systemd/(network/|networkd\.conf|logind\.conf)`, NetworkConfig},
		{`/NetworkManager/(conf\.d/|NetworkManager\.conf)`, NetworkManagerConfig},
		{`/systemd/zram-generator\.conf`, ZramConfig},
		{`/udev/rules\.d/[^/]+$`, UdevRules},
		{`^/run/udev/data/n[0-9]+$`, UdevDatabase},
		{`^/etc/tuned/(active|post_loaded)_profile$`, TunedProfiles},
		{`/tuned/`, TunedProfile},
		{`^/etc/fstab$`, MountTable},
		{`^/etc/resolv\.conf$`, ResolvConf},
		{`^/var/lib/kubelet/kubeadm-flags\.env$|^/etc/(default|sysconfig)/kubelet$`, Variables},
		{`^/var/lib/kubelet/pods/[^/]+/volumes/kubernetes\.io~configmap/`, KubeProxyConfig},
		{`^/etc/kubernetes/manifests/kube-proxy\.|^/var/lib/rancher/rke2/agent/pod-manifests/kube-proxy\.|^/var/lib/kube-proxy/config\.`,
			KubeProxyConfig},
		{`^(/var/lib/rancher/k3s/agent)?/etc/cni/net\.d/`, CNIConfig},
		{`^/run/flannel/subnet\.env$`, FlannelSubnet},
		{`^/var/log/pods/`, ContainerLog},
		{`^/etc/nodegate/`, PolicyFile},
	} {
		all = append(all, pathKind{regexp.MustCompile(k.pattern), k.kind})
	}
	return all
})

// KindOf returns the kind of a file with a fixed path, Withheld if it has none.
func KindOf(name string) Kind {
	for _, p := range pathKinds() {
		if p.pattern.MatchString(name) {
			return p.kind
		}
	}
	return Withheld
}

// discloseProcess returns a command line with the name of the program, and of the programs that
// checks know the flags that checks read. The number of arguments remains.
func discloseProcess(text string) string {
	args := strings.Split(strings.TrimRight(text, "\x00"), "\x00")
	end := text[len(strings.TrimRight(text, "\x00")):]
	known := regexp.MustCompile(`(^|/)(kube-proxy|hyperkube|kubelite|k3s(-\w+)?|rke2)( (server|agent))?$`).MatchString(args[0])
	if !regexp.MustCompile(`^[\w./@+-]+( (server|agent))?$`).MatchString(args[0]) {
		args[0] = placeholder
	}
	hide := func(string) string { return placeholder }
	if known {
		disclosedWords(args[1:], hide)
	} else {
		for i := range args[1:] {
			args[1+i] = placeholder
		}
	}
	return strings.Join(args, "\x00") + end
}
