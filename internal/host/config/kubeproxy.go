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

	"go.yaml.in/yaml/v3"
)

// KubeProxy is what the files of a machine say about kube-proxy's configuration,
// with kube-proxy's defaults for the rest.
type KubeProxy struct {
	From       string // the file, "" where no configuration is on the node
	Mode       string // iptables, nftables or ipvs
	MaxPerCore int64  // conntrack entries for each CPU; 0 leaves the limit alone
	Min        int64  // the least conntrack entries

	MinSync time.Duration // the least time between two writings of its rules

	NoExternalIPs bool // externalIPs of Services are not served

	ExcludeCIDRs []netip.Prefix // virtual servers in them are somebody else's (ipvs.excludeCIDRs)

	NodePortAddresses bool // node ports are answered at some addresses only, of which a node may have none
}

// noExternalIPs reports whether a configuration or command line switches off the feature gate AllowServiceExternalIPs, from 1.36.
func noExternalIPs(text string) bool {
	return regexp.MustCompile(`\bAllowServiceExternalIPs["']?\s*[:=]\s*["']?false`).MatchString(text)
}

// ReadKubeProxy looks where kops, RKE2, kubeadm and hand-made units leave kube-proxy's
// configuration, and in the volumes of its Pod.
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

// proxyVolumes returns the files of ConfigMaps in which the Pods of kube-proxy have its configuration: kubeadm's, the add-on's of EKS,
// and Gardener's. What a Pod of another namespace calls so, by the folder of its logs, is not kube-proxy's.
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

// ParseKubeProxy reads a KubeProxyConfiguration, or the flags of a manifest or command line. What it returns with an error is what could be
// read, with the defaults for the rest.
func ParseKubeProxy(text string) (KubeProxy, error) {
	c := KubeProxy{Mode: "iptables", MaxPerCore: 32768, Min: 131072, MinSync: time.Second, NoExternalIPs: noExternalIPs(text)}
	if !strings.Contains(text, "KubeProxyConfiguration") {
		c.NodePortAddresses = regexp.MustCompile(`--nodeport-addresses[= ]"?\w`).MatchString(text)
		if m := regexp.MustCompile(`--ipvs-exclude-cidrs[= ]"?([0-9a-fA-F.:/,]+)`).FindStringSubmatch(text); m != nil {
			c.exclude(strings.Split(m[1], ","))
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
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
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
	c.exclude(file.IPVS.ExcludeCIDRs)
	if v := file.Conntrack.MaxPerCore; v != nil {
		c.MaxPerCore = int64(*v)
	}
	if v := file.Conntrack.Min; v != nil {
		c.Min = int64(*v)
	}
	return c, nil
}

// Writes returns what kube-proxy writes to nf_conntrack_max, 0 where it leaves it
// alone. Before 1.36 there is no cap.
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

// exclude notes ranges. kube-proxy does not start with one that is none.
func (c *KubeProxy) exclude(ranges []string) {
	for _, text := range ranges {
		if p, err := netip.ParsePrefix(text); err == nil {
			c.ExcludeCIDRs = append(c.ExcludeCIDRs, p)
		}
	}
}
