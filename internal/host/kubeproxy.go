package host

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// KubeProxyConfig is what this machine's files say about kube-proxy, with
// kube-proxy's defaults for the rest.
type KubeProxyConfig struct {
	File       string // "" where no configuration is on the node: all is default
	Mode       string // iptables, nftables or ipvs
	MaxPerCore int64  // conntrack entries for each CPU; 0 leaves the limit alone
	Min        int64  // conntrack entries at the least
}

// KubeProxyConfig looks where kops, kubeadm and hand-made units leave
// kube-proxy's configuration, and in the volumes of its Pod.
func (h *Host) KubeProxyConfig() (KubeProxyConfig, error) {
	names := []string{
		"/etc/kubernetes/manifests/kube-proxy.manifest", "/etc/kubernetes/manifests/kube-proxy.yaml",
		"/var/lib/kube-proxy/config.conf", "/var/lib/kube-proxy/config.yaml",
	}
	pods, err := h.Files.ReadDir("/var/lib/kubelet/pods")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return KubeProxyConfig{}, fmt.Errorf("looking for kube-proxy's Pod: %w", err)
	}
	for _, pod := range pods {
		names = append(names, "/var/lib/kubelet/pods/"+pod+"/volumes/kubernetes.io~configmap/kube-proxy/config.conf")
	}
	for _, name := range names {
		text, err := h.Text(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return KubeProxyConfig{}, fmt.Errorf("reading kube-proxy's configuration: %w", err)
		}
		if strings.Contains(text, "--config=") {
			continue // a manifest that points at a file, maybe one of the others
		}
		c, err := parseKubeProxyConfig(text)
		if err != nil {
			return c, fmt.Errorf("reading %s: %w", name, err)
		}
		c.File = name
		return c, nil
	}
	return parseKubeProxyConfig("")
}

// parseKubeProxyConfig reads a KubeProxyConfiguration, or a manifest whose
// command line has the flags.
func parseKubeProxyConfig(text string) (KubeProxyConfig, error) {
	c := KubeProxyConfig{Mode: "iptables", MaxPerCore: 32768, Min: 131072}
	if !strings.Contains(text, "KubeProxyConfiguration") {
		flag := regexp.MustCompile(`--(proxy-mode|conntrack-max-per-core|conntrack-min)[= ]"?(\w+)`)
		for _, m := range flag.FindAllStringSubmatch(text, -1) {
			var err error
			switch m[1] {
			case "proxy-mode":
				c.Mode = m[2]
			case "conntrack-min":
				c.Min, err = strconv.ParseInt(m[2], 10, 32)
			default:
				c.MaxPerCore, err = strconv.ParseInt(m[2], 10, 32)
			}
			if err != nil {
				return c, err
			}
		}
		return c, nil
	}
	var file struct {
		Mode      string
		Conntrack struct {
			MaxPerCore *int32 `yaml:"maxPerCore"`
			Min        *int32
		}
	}
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		return c, err
	}
	if file.Mode != "" {
		c.Mode = file.Mode
	}
	if v := file.Conntrack.MaxPerCore; v != nil {
		c.MaxPerCore = int64(*v)
	}
	if v := file.Conntrack.Min; v != nil {
		c.Min = int64(*v)
	}
	return c, nil
}
