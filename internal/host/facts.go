package host

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
)

// Fact answers one of the facts that a policy's expressions can name: a string
// or an int64. False: it cannot be known here, or not yet (a file tree has no
// CPUs; before the CNI is installed it has no name).
func (h *Host) Fact(ctx context.Context, name string) (any, bool) {
	switch name {
	case "node.cpus":
		list, err := h.Text("/sys/devices/system/cpu/online")
		return countList(list), err == nil && h.Live()
	case "node.memory":
		return h.memory()
	case "kernel.release":
		release, err := h.Kernel.Release()
		return release, err == nil
	case "kernel.version":
		release, err := h.Kernel.Release()
		return leadingVersion(release), err == nil
	case "os.id":
		return h.OSRelease("ID")
	case "os.version":
		return h.OSRelease("VERSION_ID")
	case "systemd.version":
		return h.systemdVersion()
	case "cloud.provider":
		return h.cloud()
	case "cni.name":
		return h.cni()
	case "kube_proxy.mode":
		return h.proxyMode()
	case "kubelet.version":
		said, err := h.Kernel.Version(ctx, "kubelet") // "Kubernetes v1.34.1"
		return leadingVersion(strings.TrimPrefix(said, "Kubernetes v")), err == nil
	}
	return nil, false
}

// OSRelease is a field of os-release(5).
func (h *Host) OSRelease(field string) (any, bool) {
	text, err := h.Text("/etc/os-release")
	if err != nil {
		return nil, false
	}
	for _, line := range strings.Split(text, "\n") {
		if v, ok := strings.CutPrefix(line, field+"="); ok {
			return strings.Trim(v, `"'`), true
		}
	}
	return "", true
}

// countList counts the numbers of a kernel list: "0-3,5" is five.
func countList(list string) int64 {
	var n int64
	for _, part := range strings.Split(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.ParseInt(first, 10, 32)
		if err != nil {
			continue
		}
		n++
		if to, err := strconv.ParseInt(last, 10, 32); isRange && err == nil && to > from {
			n += to - from
		}
	}
	return n
}

// leadingVersion is the numbers a release begins with: 6.1.0 of 6.1.0-28-amd64.
func leadingVersion(release string) string {
	end := strings.IndexFunc(release, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 0 {
		return release
	}
	return strings.TrimRight(release[:end], ".")
}

func (h *Host) memory() (any, bool) {
	text, err := h.Text("/proc/meminfo")
	if err != nil || !h.Live() {
		return nil, false
	}
	for _, line := range strings.Split(text, "\n") {
		if words := strings.Fields(line); len(words) >= 2 && words[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(words[1], 10, 64)
			return kib << 10, err == nil
		}
	}
	return nil, false
}

// systemdVersion is read from the name of systemd's own library, which carries
// it (libsystemd-shared-252.so), so that it is known in an image too.
func (h *Host) systemdVersion() (any, bool) {
	for _, dir := range []string{"/usr/lib/systemd", "/usr/lib/x86_64-linux-gnu/systemd", "/usr/lib/aarch64-linux-gnu/systemd", "/usr/lib64/systemd"} {
		names, err := h.Files.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, n := range names {
			if v, ok := strings.CutPrefix(n, "libsystemd-shared-"); ok {
				major, _, _ := strings.Cut(leadingVersion(v), ".")
				number, err := strconv.ParseInt(major, 10, 32)
				return number, err == nil
			}
		}
	}
	return nil, false
}

// cloud is the provider by DMI; "" is a machine that is none of theirs.
func (h *Host) cloud() (any, bool) {
	if !h.Live() {
		return nil, false
	}
	vendor, err := h.Text("/sys/class/dmi/id/sys_vendor")
	if err != nil {
		return nil, false // no DMI: many arm64 machines
	}
	for _, known := range [][2]string{
		{"Amazon", "aws"}, {"Google", "gcp"}, {"Microsoft", "azure"}, {"OpenStack", "openstack"},
		{"Hetzner", "hetzner"}, {"DigitalOcean", "digitalocean"}, {"Alibaba", "alibaba"},
	} {
		if strings.HasPrefix(vendor, known[0]) {
			return known[1], true
		}
	}
	return "", true
}

// cni is the name in the first configuration file, the one that the runtime
// takes. The directory is empty until the CNI is installed: that is not known,
// not none.
func (h *Host) cni() (any, bool) {
	names, err := h.Files.ReadDir("/etc/cni/net.d")
	if err != nil {
		return nil, false
	}
	for _, n := range names {
		if !strings.HasSuffix(n, ".conf") && !strings.HasSuffix(n, ".conflist") && !strings.HasSuffix(n, ".json") {
			continue
		}
		b, err := h.Files.ReadFile("/etc/cni/net.d/" + n)
		var conf struct{ Name string }
		if err != nil || json.Unmarshal(b, &conf) != nil {
			return nil, false
		}
		return conf.Name, true
	}
	return nil, false
}

// proxyMode is what kops' static Pod or kubeadm's configuration says of
// kube-proxy; where neither is on the node it cannot be known from files.
func (h *Host) proxyMode() (any, bool) {
	for _, name := range []string{"/etc/kubernetes/manifests/kube-proxy.manifest", "/var/lib/kube-proxy/config.conf", "/var/lib/kube-proxy/config.yaml"} {
		text, err := h.Text(name)
		if err != nil {
			continue
		}
		for _, mode := range []string{"iptables", "nftables", "ipvs"} {
			if strings.Contains(text, "--proxy-mode="+mode) || strings.Contains(text, "mode: "+mode) || strings.Contains(text, `mode: "`+mode+`"`) {
				return mode, true
			}
		}
		return "iptables", true // the default on Linux
	}
	return nil, false
}
