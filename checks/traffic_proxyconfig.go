package checks

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"nodegate/internal/host"
)

// proxyConntrack is what kube-proxy is told about conntrack. Its defaults are
// 32768 entries a core and 131072 at least.
type proxyConntrack struct {
	maxPerCore, min int64
	from            string // "" where no configuration is on the node
}

var proxyConntrackFlag = regexp.MustCompile(`--conntrack-(max-per-core|min)[= ]"?(\d+)`)

// readProxyConntrack looks where kops, kubeadm and hand-made units leave
// kube-proxy's configuration, and in the volumes of its Pod.
func readProxyConntrack(h *host.Host) (proxyConntrack, error) {
	names := []string{"/etc/kubernetes/manifests/kube-proxy.manifest", "/etc/kubernetes/manifests/kube-proxy.yaml", "/var/lib/kube-proxy/config.conf", "/var/lib/kube-proxy/config.yaml"}
	pods, err := h.Files.ReadDir("/var/lib/kubelet/pods")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return proxyConntrack{}, fmt.Errorf("looking for kube-proxy's Pod: %w", err)
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
			return proxyConntrack{}, fmt.Errorf("reading kube-proxy's configuration: %w", err)
		}
		if strings.Contains(text, "--config=") {
			continue // a manifest that points at a file, maybe one of the others
		}
		c, err := parseProxyConntrack(text)
		if err != nil {
			return c, fmt.Errorf("reading %s: %w", name, err)
		}
		c.from = name
		return c, nil
	}
	return defaultProxyConntrack(), nil
}

func defaultProxyConntrack() proxyConntrack {
	return proxyConntrack{maxPerCore: 32768, min: 131072}
}

// parseProxyConntrack reads a KubeProxyConfiguration, or a manifest whose
// command line has the flags.
func parseProxyConntrack(text string) (proxyConntrack, error) {
	c := defaultProxyConntrack()
	if !strings.Contains(text, "KubeProxyConfiguration") {
		for _, m := range proxyConntrackFlag.FindAllStringSubmatch(text, -1) {
			n, err := strconv.ParseInt(m[2], 10, 32)
			if err != nil {
				return c, err
			}
			if m[1] == "min" {
				c.min = n
			} else {
				c.maxPerCore = n
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
		c.maxPerCore = int64(*v)
	}
	if v := file.Conntrack.Min; v != nil {
		c.min = int64(*v)
	}
	return c, nil
}

// writes is what kube-proxy writes to nf_conntrack_max, 0 where it leaves it
// alone. Before 1.36 there is no cap.
func (c proxyConntrack) writes(cpus int64, capped bool) int64 {
	if c.maxPerCore <= 0 {
		return 0
	}
	n := max(c.min, c.maxPerCore*cpus)
	if capped {
		n = min(n, 1048576)
	}
	return n
}
