package datapath

import (
	"cmp"
	"context"
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"

	"nodegate/internal/host"
)

// runtimeWords returns the error with which a runtime refused a call, without identifiers: these differ at each try.
func runtimeWords(err error) (words string, said bool) {
	refusal, said := errors.AsType[*host.CRIError](err)
	if !said {
		return "", false
	}
	words = regexp.MustCompile(`[0-9a-f]{64}|0x[0-9a-f]{6,}|`+host.SandboxName+`-\w+`).ReplaceAllString(refusal.Words, "ID")
	words = strings.Join(strings.Fields(words), " ")
	const most = 500
	if len(words) > most {
		words = strings.ToValidUTF8(words[:most], "") + "..."
	}
	return words, true
}

// restart returns the command that restarts the runtime.
func (r SandboxResult) restart() string { return "run `systemctl restart " + r.unit() + "`" }

func (r SandboxResult) unit() string {
	switch {
	case strings.Contains(r.Socket, "/k3s/"):
		return "k3s-agent"
	case strings.HasPrefix(r.Runtime, "cri-o"):
		return "crio"
	}
	return "containerd"
}

const containerdConfig = "/etc/containerd/config.toml"

const crioConfig = "of /etc/crio/crio.conf.d/*.conf or /etc/crio/crio.conf"

// pull returns what to do about the missing image.
func (r SandboxResult) pull() string {
	if r.unit() == "crio" {
		return "run `crictl pull " + r.Image + "`; if no registry gives it, load the image with podman or skopeo, or correct pause_image in " +
			"[crio.image] " + crioConfig
	}
	pull := "`ctr -n k8s.io images pull " + cmp.Or(r.Image, "NAME") + "`"
	if r.Image == "" {
		pull += ", with the name that `containerd config dump` has below pinned_images"
	}
	return "run " + pull + "; if no registry gives it, " + importImage
}

const importImage = "import the image, or correct its name in the configuration (sandbox_image or pinned_images.sandbox)"

type knownError struct{ words, remedy string }

// remedies are what to do about an error of a runtime: the first whose words it contains.
var remedies = []knownError{
	{"sandbox image", importImage},
	{"expected cgroupsPath to be of format", "set SystemdCgroup and kubelet's cgroupDriver to the same driver"},
	{"unknown version specified", "upgrade the handler's program (runc or crun): it is older than the runtime's OCI specification"},
	{"cannot use systemd cgroups manager", "set SystemdCgroup = false: systemd does not run here"},
	{"apparmor", "install the package apparmor, which has apparmor_parser, or correct the profile that the error names"},
	{"seccomp", "install a runc with seccomp, on a kernel with CONFIG_SECCOMP_FILTER, or correct the profile that the error names"},
	{"failed to mount", "`dmesg` has the kernel's reason; load module overlay, or set snapshotter to one that this file system takes"},
	{"incompatible cni versions", "set cniVersion in the network's file to a version that the error lists, or install newer CNI plugins"},
	{"no IP addresses available in range set", "the addresses of Pods that are gone are still reserved: drain the node, and remove " +
		"the files of /var/lib/cni/networks"},
	{"oom_score_adj", "the runtime lacks CAP_SYS_RESOURCE: set restrict_oom_score_adj = true, or give it the capability"},
}

// remedy returns what to do about an error of the runtime.
func (p *sandboxProbe) remedy(words string) string {
	if p.r.Stale != "" {
		return p.r.restart() + ": " + p.r.staleText()
	}
	if m := regexp.MustCompile(`failed to find plugin "([^"/]+)" in path \[([^\]]*)\]`).FindStringSubmatch(words); m != nil {
		remedy := p.pluginRemedy(m[1], strings.Fields(m[2]))
		if p.comesLater(m[1]) {
			remedy = "start kubelet: the network's own Pod installs the plugin; if it does not, " + remedy
		}
		return remedy
	}
	if m := regexp.MustCompile(`(?:^|file )(/[^ :"]+\.(?:conf|conflist|json)): `).FindStringSubmatch(words); m != nil {
		return "correct " + m[1] + ", or remove it: the runtime then takes the next file"
	}
	if m := regexp.MustCompile(`exec:? "?(/[^ :"]+)"?: (exec format error|permission denied)`).FindStringSubmatch(words); m != nil {
		if m[2] == "permission denied" {
			return "run `chmod 755 " + m[1] + "`; if it is executable, mount its file system without noexec (`findmnt -T " + m[1] + "`)"
		}
		return "install " + m[1] + " for this machine (`uname -m`), whole: an empty or cut file gives the same error"
	}
	if m := missingProgram().FindStringSubmatch(words); m != nil {
		where := "BinaryName or runtime_type of the handler in " + containerdConfig
		if p.r.unit() == "crio" {
			where = "runtime_path, monitor_path or pinns_path " + crioConfig
		}
		return "install " + m[1] + m[2] + m[3] + ", or correct " + where + ", then " + p.r.restart()
	}
	for _, k := range remedies {
		if strings.Contains(strings.ToLower(words), strings.ToLower(k.words)) {
			return k.remedy
		}
	}
	return "correct what the runtime reports; `journalctl -u " + p.r.unit() + "` has more"
}

// spareBridge sets the remedy for a bridge with the address of an earlier range. Pods on it would lose their network with it, also a
// DaemonSet's, which a drain leaves.
func (p *sandboxProbe) spareBridge(ctx context.Context) {
	m := regexp.MustCompile(`"([^"]+)" already has an IP address different from`).FindStringSubmatch(p.r.Words)
	if m == nil {
		return
	}
	p.r.Remedy = "run `ip link delete " + m[1] + "`: the CNI makes the bridge again, with the node's present range"
	links, err := p.h.Links.List(ctx)
	if err != nil || slices.ContainsFunc(links, func(l host.Link) bool { return l.Master == m[1] }) {
		p.r.Remedy = "run `kubectl drain NODE --ignore-daemonsets --delete-emptydir-data`, then reboot: Pods are on " + m[1] +
			", and the CNI makes it again with the node's present range"
	}
}

// missingProgram matches an error about a program of the runtime that does not exist.
func missingProgram() *regexp.Regexp {
	return regexp.MustCompile(`exec: "([^"]+)": (?:executable file not found|stat |file does not exist)|` +
		`fork/exec ([^ :]+): no such file or directory|binary not installed "([^"]+)"`)
}

// pluginDirs are the directories to which packages and CNIs install plugins.
var pluginDirs = []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"}

// pluginRemedy looks for a missing CNI plugin in pluginDirs. A directory without the network's
// other plugins cannot take the place of the runtime's.
func (p *sandboxProbe) pluginRemedy(plugin string, dirs []string) string {
	for _, dir := range pluginDirs {
		isMissing := func(plugin string) bool {
			exists, err := p.h.Files.Exists(path.Join(dir, plugin))
			return !exists || err != nil
		}
		switch {
		case isMissing(plugin) || slices.Contains(dirs, dir):
		case len(dirs) > 0 && (len(p.setup.Networks) == 0 || slices.ContainsFunc(p.setup.Plugins(), isMissing)):
			return "run `cp " + path.Join(dir, plugin) + " " + dirs[0] + "/`"
		default:
			return "the network's plugins are in " + dir + ": set " + p.pluginSetting(dir) + ", then " + p.r.restart()
		}
	}
	if slices.Contains(referencePlugins, plugin) {
		plugin += " (https://github.com/containernetworking/plugins has it)"
	}
	return "install the CNI plugin " + plugin + " into " + strings.Join(dirs, " or ")
}

// pluginSetting returns the setting of the runtime for a directory of CNI plugins.
func (p *sandboxProbe) pluginSetting(dir string) string {
	if p.r.unit() == "crio" {
		return `plugin_dirs = ["` + dir + `"] in [crio.network] ` + crioConfig
	}
	return `bin_dir = "` + dir + `" (since containerd 2.1 bin_dirs = ["` + dir + `"]) in the section of CRI's cni, in ` + containerdConfig
}

// referencePlugins need neither a daemon nor the API server (https://www.cni.dev/plugins/current/).
var referencePlugins = []string{"bridge", "ptp", "host-local", "static", "loopback", "portmap", "bandwidth", "firewall", "tuning", "sbr"}

// foreignPlugin returns the first plugin of the runtime's network that may need a daemon or the API server, or "".
func (p *sandboxProbe) foreignPlugin() string {
	for _, plugin := range p.setup.Plugins() {
		if !slices.Contains(referencePlugins, plugin) {
			return plugin
		}
	}
	return ""
}

// comesLater reports whether the network's own Pod, which needs kubelet, may bring a missing plugin: its own, and what it has beside that.
// flannel's brings only flannel.
func (p *sandboxProbe) comesLater(plugin string) bool {
	foreign := p.foreignPlugin()
	isOwn := foreign != "" && (foreign != "flannel" || plugin == foreign)
	return isOwn && !slices.ContainsFunc(pluginDirs, func(dir string) bool { // then the runtime's directory is wrong
		exists, err := p.h.Files.Exists(path.Join(dir, foreign))
		return exists && err == nil && !slices.Contains(p.setup.PluginDirs, dir)
	})
}

// cannotRun reports whether the words about a sandbox that stays name a plugin of the node's own that cannot start one either.
func (p *sandboxProbe) cannotRun(words string) bool {
	m := regexp.MustCompile(`plugin (?:type=)?"([^"]+)".*(?:exec format error|permission denied|incompatible CNI versions|in path)`).
		FindStringSubmatch(words)
	return m != nil && slices.Contains(referencePlugins, m[1]) && !p.comesLater(m[1])
}

// needsDaemon returns the plugin that refused the sandbox for a reason that need not be the node's, or "".
func (p *sandboxProbe) needsDaemon() string {
	if p.r.Failed != FailedStart || p.r.HostNetwork || !strings.Contains(p.r.Words, "network") ||
		strings.Contains(p.r.Words, "failed to find plugin") || strings.Contains(p.r.Words, "already has an IP address different from") {
		return ""
	}
	plugin := p.foreignPlugin()
	if m := regexp.MustCompile(`plugin type="([^"]+)" failed`).FindStringSubmatch(p.r.Words); m != nil {
		plugin = m[1]
	}
	if slices.Contains(referencePlugins, plugin) {
		return ""
	}
	return plugin
}
