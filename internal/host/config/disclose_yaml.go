package config

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// discloser of one value: key is its path, such as users.[].user.client-certificate.
type fieldFilter func(key, value string) string

// discloseYAML returns the first document of a YAML file with the values below the given keys, in
// which [] is any element of a list, and * any key. Every other key has a placeholder as its value. A
// text that is not YAML stays one.
func discloseYAML(text []byte, keys []string, show fieldFilter) []byte {
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return brokenYAML(text)
	}
	if file.Kind == 0 {
		return []byte("\n")
	}
	discloseNode(&file, "", keys, show, map[*yaml.Node]bool{})
	var out bytes.Buffer
	to := yaml.NewEncoder(&out)
	if to.Encode(&file) != nil || to.Close() != nil {
		return brokenYAML(text)
	}
	return out.Bytes()
}

// brokenYAML returns a text with the same fault but without the words.
func brokenYAML(text []byte) []byte {
	masked := regexp.MustCompile(`[^\s:{}\[\],"'#&*!|>%@-]`).ReplaceAllLiteral(text, []byte("x"))
	if yaml.Unmarshal(masked, new(yaml.Node)) != nil {
		return masked
	}
	return []byte("{")
}

func discloseNode(n *yaml.Node, at string, keys []string, show fieldFilter, done map[*yaml.Node]bool) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	if done[n] {
		return
	}
	done[n] = true
	if !strings.HasPrefix(n.Tag, "!!") {
		n.Tag = ""
	}
	below := func(key string) string { return strings.TrimPrefix(at+"."+key, ".") }
	switch n.Kind {
	case yaml.DocumentNode:
		discloseNode(n.Content[0], at, keys, show, done)
	case yaml.AliasNode: // its anchor is disclosed where it is defined
	case yaml.SequenceNode:
		for _, child := range n.Content {
			discloseNode(child, below("[]"), keys, show, done)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, child := n.Content[i], n.Content[i+1]
			key.HeadComment, key.LineComment, key.FootComment = "", "", ""
			if key.Kind != yaml.ScalarNode {
				hideNode(key)
			}
			switch next := below(key.Value); {
			case key.ShortTag() == "!!merge":
				discloseNode(child, at, keys, show, done)
			case leadsTo(keys, next):
				discloseNode(child, next, keys, show, done)
			default:
				hideNode(child)
			}
		}
	case yaml.ScalarNode:
		if shown := show(at, n.Value); shown != n.Value && n.ShortTag() != "!!null" {
			n.Value, n.Tag, n.Style = shown, "!!str", 0
		}
	}
}

// hideNode replaces a value; an anchor in it remains, because an alias may need it.
func hideNode(n *yaml.Node) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	if n.Kind != yaml.ScalarNode {
		n.Tag = ""
	}
	if n.Kind == yaml.AliasNode || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	if n.Kind == yaml.ScalarNode {
		n.Value, n.Tag, n.Style = placeholder, "!!str", 0
		return
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && child.Kind == yaml.ScalarNode {
			child.HeadComment, child.LineComment, child.FootComment = "", "", ""
			continue
		}
		hideNode(child)
	}
}

// leadsTo reports whether a key is one of the patterns, or above one.
func leadsTo(patterns []string, key string) bool {
	parts := strings.Split(key, ".")
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		want := strings.Split(pattern, ".")
		if len(parts) > len(want) && want[len(want)-1] != "**" {
			return false
		}
		for i, p := range parts {
			if want[i] == "**" {
				return true
			}
			if want[i] != "*" && want[i] != p {
				return false
			}
		}
		return true
	})
}

// kubeletFields are the fields of KubeletConfiguration that checks read.
func kubeletFields() []string {
	return []string{
		"apiVersion", "kind", "address", "cgroupDriver", "containerRuntimeEndpoint", "failCgroupV1", "failSwapOn", "featureGates.*",
		"healthzBindAddress", "healthzPort", "imageServiceEndpoint", "memorySwap.swapBehavior", "port", "protectKernelDefaults",
		"registerNode", "resolvConf", "rotateCertificates", "shutdownGracePeriod",
		"shutdownGracePeriodByPodPriority.[].shutdownGracePeriodSeconds",
	}
}

// kubeProxyFields are the fields of KubeProxyConfiguration that checks read.
func kubeProxyFields() []string {
	return []string{
		"apiVersion", "kind", "mode", "conntrack.maxPerCore", "conntrack.min", "nodePortAddresses.[]", "iptables.minSyncPeriod",
		"ipvs.minSyncPeriod", "ipvs.excludeCIDRs.[]", "nftables.minSyncPeriod", "featureGates.AllowServiceExternalIPs",
	}
}

func (d *Discloser) plain(_, value string) string { return plainValue(value, d.Hide) }

// kubeProxy discloses a KubeProxyConfiguration, or of another text, such as a manifest, the flags
// of kube-proxy in it.
func (d *Discloser) kubeProxy(text []byte) []byte {
	if bytes.Contains(text, []byte("KubeProxyConfiguration")) {
		return discloseYAML(text, kubeProxyFields(), d.plain)
	}
	var out strings.Builder
	flag := regexp.MustCompile(`--(proxy-mode|conntrack-max-per-core|conntrack-min|(?:iptables|ipvs)-min-sync-period|nodeport-addresses|` +
		`ipvs-exclude-cidrs|config)([= ])"?([^\s"']*)`)
	for _, m := range flag.FindAllStringSubmatch(string(text), -1) {
		out.WriteString("--" + m[1] + m[2] + plainValue(m[3], d.Hide) + "\n")
	}
	if noExternalIPs(string(text)) {
		out.WriteString("--feature-gates=AllowServiceExternalIPs=false\n")
	}
	return []byte(out.String())
}

// k3sArgument discloses an argument of kube-proxy in k3s' configuration.
func (d *Discloser) k3sArgument(_, value string) string {
	name, said, assigns := strings.Cut(value, "=")
	flag := strings.TrimRight(strings.TrimPrefix(name, "--"), "+-")
	switch {
	case slices.Contains(readFlags(), flag) && assigns:
		return name + "=" + plainValue(said, d.Hide)
	case slices.Contains(readFlags(), flag):
		return name
	}
	return d.Hide(value)
}

// kubeconfigFields are the fields of a kubeconfig that checks read. Every other one only shows that it is set.
func kubeconfigFields() []string {
	return []string{
		"current-context", "contexts.[].name", "contexts.[].context.cluster", "contexts.[].context.user", "clusters.[].name",
		"clusters.[].cluster.certificate-authority", "clusters.[].cluster.certificate-authority-data",
		"clusters.[].cluster.insecure-skip-tls-verify", "clusters.[].cluster.server", "users.[].name", "users.[].user.client-certificate",
		"users.[].user.client-certificate-data", "users.[].user.client-key", "users.[].user.tokenFile", "users.[].user.exec.apiVersion",
		"users.[].user.exec.command", "users.[].user.exec.interactiveMode", "users.[].user.exec.provideClusterInfo",
	}
}

// kubeconfigField discloses the certificates of a kubeconfig, which are public. Of a server's address only the scheme remains.
func (d *Discloser) kubeconfigField(key, value string) string {
	switch path.Ext(key) {
	case ".server":
		if scheme, rest, is := strings.Cut(value, "://"); is && (scheme == "https" || scheme == "http") && rest != "" {
			return scheme + "://" + placeholder
		}
		return regexp.MustCompile(`[^/]+`).ReplaceAllLiteralString(value, placeholder)
	case ".apiVersion", ".interactiveMode":
		if slices.Contains([]string{
			"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1", "client.authentication.k8s.io/v1alpha1", "Never",
			"IfAvailable", "Always",
		}, value) {
			return value
		}
		return plainValue(value, d.Hide)
	case ".client-certificate-data", ".certificate-authority-data":
	default:
		return plainValue(value, d.Hide)
	}
	der, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return placeholder
	}
	return base64.StdEncoding.EncodeToString(certificates(der))
}

// certificates returns the certificates of a PEM file, and in place of each private key a mark that
// HasPrivateKey recognizes.
func certificates(text []byte) []byte {
	var out bytes.Buffer
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			block.Bytes = []byte{0} // not readable either
		}
		_ = pem.Encode(&out, &pem.Block{Type: block.Type, Bytes: block.Bytes}) // a buffer takes every write
	}
	if HasPrivateKey(text) {
		out.WriteString(leftOut + "\n")
	}
	if out.Len() == 0 {
		return []byte("\n")
	}
	return out.Bytes()
}

// discloseJSON is discloseYAML for a file that is read as JSON only, whose keys match in any case.
func discloseJSON(text []byte, keys []string, show fieldFilter) []byte {
	var file any
	if json.Unmarshal(text, &file) != nil {
		return []byte("{")
	}
	out, err := json.Marshal(discloseValue(file, "", keys, show))
	if err != nil {
		return []byte("{")
	}
	return out
}

func discloseValue(value any, at string, keys []string, show fieldFilter) any {
	below := func(key string) string { return strings.TrimPrefix(at+"."+key, ".") }
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			if next := below(strings.ToLower(key)); leadsTo(keys, next) {
				v[key] = discloseValue(child, next, keys, show)
			} else if child != nil {
				v[key] = placeholder
			}
		}
		return v
	case []any:
		for i, child := range v {
			v[i] = discloseValue(child, below("[]"), keys, show)
		}
		return v
	case string:
		return show(at, v)
	}
	return value
}

// networkName discloses the names in a configuration of CNI.
func (d *Discloser) networkName(_, value string) string {
	if regexp.MustCompile(`^[a-z][a-z0-9._-]{0,40}$`).MatchString(value) {
		return value
	}
	return d.Hide(value)
}
