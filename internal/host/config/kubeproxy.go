package config

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// KubeProxy is kube-proxy's configuration according to the machine's files, with kube-proxy's
// defaults for the rest.
type KubeProxy struct {
	From       string // the file, "" if the node has no configuration
	Mode       string // iptables, nftables or ipvs
	MaxPerCore int64  // conntrack entries per CPU; 0 leaves the limit unchanged
	Min        int64  // minimum number of conntrack entries

	MinSync time.Duration // minimum time between two syncs

	NoExternalIPs bool // externalIPs of Services are not served

	ExcludeCIDRs []netip.Prefix // kube-proxy ignores virtual servers in these ranges (ipvs.excludeCIDRs)

	NodePortAddresses bool // node ports are served on some addresses only; a node may have none of them
}

// noExternalIPs reports whether a configuration or command line disables the feature gate
// AllowServiceExternalIPs, which exists since 1.36.
func noExternalIPs(text string) bool {
	return regexp.MustCompile(`\bAllowServiceExternalIPs["']?\s*[:=]\s*["']?false`).MatchString(text)
}

// ReadKubeProxy looks for kube-proxy's configuration in the places that kops, RKE2, kubeadm and
// custom units use, and in the volumes of its Pod.
func ReadKubeProxy(files Files) (KubeProxy, error) {
	names := []string{
		"/etc/kubernetes/manifests/kube-proxy.manifest", "/etc/kubernetes/manifests/kube-proxy.yaml",
		"/var/lib/rancher/rke2/agent/pod-manifests/kube-proxy.yaml",
		"/var/lib/kube-proxy/config.conf", "/var/lib/kube-proxy/config.yaml",
	}
	volumes, err := proxyVolumes(files)
	if err != nil {
		return KubeProxy{}, fmt.Errorf("looking for kube-proxy's Pod: %w", err)
	}
	for _, name := range append(names, volumes...) {
		text, found, err := ReadYAML(files, name)
		if err != nil {
			return KubeProxy{}, fmt.Errorf("reading kube-proxy's configuration: %w", err)
		}
		if !found || strings.Contains(string(text), "--config=") {
			continue // a manifest that refers to a file, maybe one of the others
		}
		c, err := ParseKubeProxy(string(text))
		if err != nil {
			return c, fmt.Errorf("reading %s: %w", name, err)
		}
		c.From = name
		return c, nil
	}
	return ParseKubeProxy("")
}

// proxyVolumes returns the ConfigMap files from which kube-proxy's Pods read its configuration:
// those of kubeadm, of the EKS add-on and of Gardener. It ignores a volume with such a name if the
// directory of the Pod's logs shows another namespace.
func proxyVolumes(files Files) ([]string, error) {
	pods, err := ReadDirIfAny(files, "/var/lib/kubelet/pods")
	if err != nil {
		return nil, err
	}
	var found, logs []string
	for _, pod := range pods {
		for _, file := range []string{"kube-proxy/config.conf", "config/config", "kube-proxy-config/config.yaml"} {
			name := "/var/lib/kubelet/pods/" + pod + "/volumes/kubernetes.io~configmap/" + file
			text, exists, err := ReadIfAny(files, name)
			if err != nil {
				return nil, err
			}
			if !exists || !bytes.Contains(text, []byte("KubeProxyConfiguration")) {
				continue
			}
			if logs == nil {
				if logs, err = ReadDirIfAny(files, "/var/log/pods"); err != nil {
					return nil, err
				}
			}
			if !slices.ContainsFunc(logs, func(of string) bool { // NAMESPACE_NAME_UID
				return strings.HasSuffix(of, "_"+pod) && !strings.HasPrefix(of, "kube-system_")
			}) {
				found = append(found, name)
			}
		}
	}
	return found, nil
}

// ParseKubeProxy reads a KubeProxyConfiguration, or the flags in a manifest or on a command line.
// Together with an error it returns the values that it could read, and the defaults for the rest.
func ParseKubeProxy(text string) (KubeProxy, error) {
	c := KubeProxy{Mode: "iptables", MaxPerCore: 32768, Min: 131072, MinSync: time.Second, NoExternalIPs: noExternalIPs(text)}
	if !strings.Contains(text, "KubeProxyConfiguration") {
		c.NodePortAddresses = regexp.MustCompile(`--nodeport-addresses[= ]"?\w`).MatchString(text)
		if m := regexp.MustCompile(`--ipvs-exclude-cidrs[= ]"?([0-9a-fA-F.:/,]+)`).FindStringSubmatch(text); m != nil {
			c.addExcluded(strings.Split(m[1], ","))
		}
		flag := regexp.MustCompile(`--(?:proxy-(mode)|conntrack-(max-per-core|min)|(?:iptables|ipvs)-(min-sync-period))[= ]"?([\w.]+)`)
		var errs []error
		number := func(to *int64, text string) {
			n, err := strconv.ParseInt(text, 10, 32)
			if errs = append(errs, err); err == nil {
				*to = n
			}
		}
		for _, m := range flag.FindAllStringSubmatch(text, -1) {
			switch m[1] + m[2] + m[3] {
			case "mode":
				c.Mode = m[4]
			case "min":
				number(&c.Min, m[4])
			case "min-sync-period":
				d, err := time.ParseDuration(m[4])
				if errs = append(errs, err); err == nil {
					c.MinSync = d
				}
			default:
				number(&c.MaxPerCore, m[4])
			}
		}
		return c, errors.Join(errs...)
	}
	var file struct {
		Mode      string
		Conntrack struct {
			MaxPerCore *int32 `yaml:"maxPerCore"`
			Min        *int32
		}
		NodePortAddresses        []string `yaml:"nodePortAddresses"`
		IPTables, IPVS, NFTables struct {
			MinSyncPeriod string   `yaml:"minSyncPeriod"`
			ExcludeCIDRs  []string `yaml:"excludeCIDRs"`
		}
	}
	if err := UnmarshalYAML([]byte(text), &file); err != nil {
		return c, err
	}
	if file.Mode != "" {
		c.Mode = file.Mode
	}
	for _, period := range []string{file.IPTables.MinSyncPeriod, file.IPVS.MinSyncPeriod, file.NFTables.MinSyncPeriod} {
		// kubeadm writes 0s, which is kube-proxy's default.
		if d, err := time.ParseDuration(period); err == nil && d > c.MinSync {
			c.MinSync = d
		}
	}
	c.NodePortAddresses = len(file.NodePortAddresses) > 0
	c.addExcluded(file.IPVS.ExcludeCIDRs)
	if v := file.Conntrack.MaxPerCore; v != nil {
		c.MaxPerCore = int64(*v)
	}
	if v := file.Conntrack.Min; v != nil {
		c.Min = int64(*v)
	}
	return c, nil
}

// Writes returns the value that kube-proxy writes to nf_conntrack_max, or 0 if it writes none.
// capped must be false before 1.36, which has introduced the cap.
func (c KubeProxy) Writes(cpus int64, capped bool) int64 {
	if c.MaxPerCore <= 0 {
		return 0
	}
	n := max(c.Min, c.MaxPerCore*cpus)
	if capped {
		n = min(n, 1048576)
	}
	return n
}

// addExcluded adds ranges. It skips invalid ones, with which kube-proxy does not start.
func (c *KubeProxy) addExcluded(ranges []string) {
	for _, text := range ranges {
		if p, err := netip.ParsePrefix(text); err == nil {
			c.ExcludeCIDRs = append(c.ExcludeCIDRs, p)
		}
	}
}
