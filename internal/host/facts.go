package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"nodegate/internal/host/config"
	"nodegate/internal/host/file"
)

// Fact returns a fact, which the expressions of a policy can name, as a string or an int64. It
// returns false if the fact is unknown here, or not known yet: a file tree lacks CPUs, and a node
// lacks a CNI before one is installed.
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
		release, err := h.KernelRelease()
		return release.Numbers, err == nil
	case "os.id":
		release, err := h.OSRelease()
		return release["ID"], err == nil
	case "os.version":
		release, err := h.OSRelease()
		return release["VERSION_ID"], err == nil
	case "systemd.version":
		version, _, err := h.SystemdVersion()
		return int64(version), err == nil
	case "cloud.provider":
		return h.cloud()
	case "cni.name":
		name, err := Conclude(h, name, "", (*Host).cni)
		return name, err == nil
	case "kube_proxy.mode":
		c, err := Conclude(h, name, "", func(h *Host) (string, error) {
			c, err := config.ReadKubeProxy(h.Files)
			if err == nil && c.From == "" {
				err = fs.ErrNotExist
			}
			return c.Mode, err
		})
		return c, err == nil
	case "kubelet.version":
		said, err := h.kubeletVersion(ctx) // "Kubernetes v1.34.1"
		return config.LeadingNumbers(strings.TrimPrefix(said, "Kubernetes v")), err == nil
	}
	return nil, false
}

// KernelRelease returns the running kernel's release, parsed.
func (h *Host) KernelRelease() (config.KernelRelease, error) {
	release, err := h.Kernel.Release()
	if err != nil {
		return config.KernelRelease{}, err
	}
	return config.ParseKernelRelease(release)
}

// mostOSRelease is a hundred times the size of the files that distributions ship.
const mostOSRelease = 64 << 10

// OSRelease returns the variables of os-release(5). It skips lines that are not assignments.
func (h *Host) OSRelease() (config.OSRelease, error) {
	name := "/etc/os-release"
	text, err := h.Files.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		name = "/usr/lib/os-release"
		text, err = h.Files.ReadFile(name)
	}
	if err != nil {
		return nil, err
	}
	if len(text) > mostOSRelease {
		return nil, file.TooLarge(name, mostOSRelease)
	}
	return config.ParseOSRelease(text), nil
}

// countList counts the numbers in a kernel list: "0-3,5" contains five.
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

// cloud returns the cloud provider according to DMI, or "" if the machine matches no known
// provider.
func (h *Host) cloud() (any, bool) {
	if !h.Live() {
		return nil, false
	}
	vendor, err := h.Text("/sys/class/dmi/id/sys_vendor")
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // no DMI: many arm64 machines
		return nil, false
	}
	for _, known := range [][2]string{
		{"Amazon", "aws"}, {"Google", "gcp"}, {"Microsoft", "azure"}, {"OpenStack", "openstack"},
		{"Hetzner", "hetzner"}, {"DigitalOcean", "digitalocean"}, {"Alibaba", "alibaba"},
	} {
		if strings.HasPrefix(vendor, known[0]) {
			return known[1], true
		}
	}
	product, err := h.Text("/sys/class/dmi/id/product_name") // Red Hat's OpenStack Compute; older snapshots lack this file
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrNotRecorded) {
		return nil, false
	}
	if strings.HasPrefix(product, "OpenStack") {
		return "openstack", true
	}
	if vendor == "Xen" { // on EC2's older types (t2, m4) only the firmware names Amazon: 4.11.amazon
		bios, err := h.Text("/sys/class/dmi/id/bios_version")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, false
		}
		if strings.HasSuffix(bios, ".amazon") {
			return "aws", true
		}
	}
	return "", true
}

// cni returns the name in the first configuration file, which is the one that the container runtime
// uses. The directory is empty until a CNI is installed: until then the name is unknown, not empty.
func (h *Host) cni() (string, error) {
	names, err := h.Files.ReadDir("/etc/cni/net.d")
	if err != nil {
		return "", err
	}
	for _, n := range names {
		if !strings.HasSuffix(n, ".conf") && !strings.HasSuffix(n, ".conflist") && !strings.HasSuffix(n, ".json") {
			continue
		}
		b, err := h.Files.ReadFile("/etc/cni/net.d/" + n)
		var conf struct{ Name string }
		if err = cmp.Or(err, json.Unmarshal(b, &conf)); err != nil {
			return "", err
		}
		return conf.Name, nil
	}
	return "", fs.ErrNotExist
}

// CNIConfig returns the names and contents of the CNI's configuration files on this node, or "" before there is a CNI.
func (h *Host) CNIConfig() (string, error) {
	all := ""
	for _, dir := range []string{"/etc/cni/net.d", "/var/lib/rancher/k3s/agent/etc/cni/net.d"} {
		names, err := h.ReadDirIfAny(dir)
		if err != nil {
			return "", err
		}
		for _, name := range names {
			if !strings.HasSuffix(name, ".conf") && !strings.HasSuffix(name, ".conflist") {
				continue
			}
			text, err := h.Files.ReadFile(dir + "/" + name)
			if err != nil {
				return "", err
			}
			all += name + "\n" + string(text) + "\n"
		}
	}
	return all, nil
}

// kubeletVersion runs the kubelet that the unit starts, or else the one in the search path.
func (h *Host) kubeletVersion(ctx context.Context) (string, error) {
	return Conclude(h, "kubelet.version", "", func(h *Host) (string, error) { return h.runKubelet(ctx) })
}

func (h *Host) runKubelet(ctx context.Context) (string, error) {
	if k, _ := h.Kubelet(); k.Command != nil {
		var command []string
		if len(k.Command) > 1 && k.Command[1] == "kubelet" { // hyperkube kubelet
			command = k.Command[1:2]
		}
		if said, err := h.Kernel.Version(ctx, k.Command[0], command...); err == nil || errors.Is(err, context.DeadlineExceeded) {
			return said, err
		}
	}
	return h.Kernel.Version(ctx, "kubelet")
}

// KubeletMinor runs kubelet and returns its minor version, 34 for kubelet 1.34.1. It returns 0 if
// kubelet is missing or prints no version, and an error if kubelet did not finish in time.
func (h *Host) KubeletMinor(ctx context.Context) (minor int, err error) {
	said, err := h.kubeletVersion(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return 0, err
	}
	if _, err := fmt.Sscanf(said, "Kubernetes v1.%d.", &minor); err != nil {
		return 0, nil
	}
	return minor, nil
}
