package config

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ProxyConntrack is what kube-proxy is told about conntrack. Its defaults are
// 32768 entries a core and 131072 at least.
type ProxyConntrack struct {
	MaxPerCore, Min int64
	From            string // "" where no configuration is on the node
}

var proxyConntrackFlag = regexp.MustCompile(`--conntrack-(max-per-core|min)[= ]"?(\d+)`)

// ReadProxyConntrack looks where kops, kubeadm and hand-made units leave
// kube-proxy's configuration, and in the volumes of its Pod.
func ReadProxyConntrack(files Files) (ProxyConntrack, error) {
	names := []string{"/etc/kubernetes/manifests/kube-proxy.manifest", "/etc/kubernetes/manifests/kube-proxy.yaml", "/var/lib/kube-proxy/config.conf", "/var/lib/kube-proxy/config.yaml"}
	pods, err := files.ReadDir("/var/lib/kubelet/pods")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ProxyConntrack{}, fmt.Errorf("looking for kube-proxy's Pod: %w", err)
	}
	for _, pod := range pods {
		names = append(names, "/var/lib/kubelet/pods/"+pod+"/volumes/kubernetes.io~configmap/kube-proxy/config.conf")
	}
	for _, name := range names {
		raw, err := files.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return ProxyConntrack{}, fmt.Errorf("reading kube-proxy's configuration: %w", err)
		}
		text := strings.TrimSpace(string(raw))
		if strings.Contains(text, "--config=") {
			continue // a manifest that points at a file, maybe one of the others
		}
		c, err := parseProxyConntrack(text)
		if err != nil {
			return c, fmt.Errorf("reading %s: %w", name, err)
		}
		c.From = name
		return c, nil
	}
	return defaultProxyConntrack(), nil
}

func defaultProxyConntrack() ProxyConntrack {
	return ProxyConntrack{MaxPerCore: 32768, Min: 131072}
}

// parseProxyConntrack reads a KubeProxyConfiguration, or a manifest whose
// command line has the flags.
func parseProxyConntrack(text string) (ProxyConntrack, error) {
	c := defaultProxyConntrack()
	if !strings.Contains(text, "KubeProxyConfiguration") {
		for _, m := range proxyConntrackFlag.FindAllStringSubmatch(text, -1) {
			n, err := strconv.ParseInt(m[2], 10, 32)
			if err != nil {
				return c, err
			}
			if m[1] == "min" {
				c.Min = n
			} else {
				c.MaxPerCore = n
			}
		}
		return c, nil
	}
	var file struct {
		Conntrack struct {
			MaxPerCore *int32 `yaml:"maxPerCore"`
			Min        *int32 `yaml:"min"`
		} `yaml:"conntrack"`
	}
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		return c, err
	}
	if v := file.Conntrack.MaxPerCore; v != nil {
		c.MaxPerCore = int64(*v)
	}
	if v := file.Conntrack.Min; v != nil {
		c.Min = int64(*v)
	}
	return c, nil
}

// Writes is what kube-proxy writes to nf_conntrack_max, 0 where it leaves it
// alone. Before 1.36 there is no cap.
func (c ProxyConntrack) Writes(cpus int64, capped bool) int64 {
	if c.MaxPerCore <= 0 {
		return 0
	}
	n := max(c.Min, c.MaxPerCore*cpus)
	if capped {
		n = min(n, 1048576)
	}
	return n
}
