package policy

import (
	"maps"
	"slices"
	"strings"
)

// usualNodes returns the facts of nodes that exist: the recorded kernels, other distributions and clouds, and the sizes that clouds offer.
// A new node does not know its CNI, kube-proxy and kubelet yet.
func usualNodes() []map[string]any {
	const debian11, debian12, debian13 = "5.10.0-35-amd64", "6.1.0-28-cloud-amd64", "6.12.43+deb13-amd64"
	var all []map[string]any
	for _, n := range []struct {
		cpus, gib         int64
		release, os, os2  string
		systemd           int64
		cloud, cni, proxy string
		kubelet           string
	}{
		{1, 1, debian12, "debian", "12", 252, "", "", "", ""},
		{1, 2, debian11, "debian", "11", 247, "hetzner", "cbr0", "iptables", "1.29.15"},
		{1, 2, debian13, "debian", "13", 257, "", "cbr0", "nftables", "1.34.1"},
		{2, 4, debian11, "debian", "11", 247, "", "", "", ""},
		{2, 4, debian12, "debian", "12", 252, "aws", "aws-cni", "iptables", "1.31.7"},
		{2, 4, debian13, "debian", "13", 257, "gcp", "cilium", "iptables", "1.33.4"},
		{2, 4, "5.15.0-139-generic", "ubuntu", "22.04", 249, "digitalocean", "cilium", "iptables", "1.32.5"},
		{2, 8, "6.8.0-60-generic", "ubuntu", "24.04", 255, "openstack", "k8s-pod-network", "ipvs", "1.32.5"},
		{2, 8, "4.14.355-277.647.amzn2.x86_64", "amzn", "2", 219, "aws", "aws-cni", "iptables", "1.28.15"},
		{2, 8, "6.1.141-155.222.amzn2023.x86_64", "amzn", "2023", 252, "aws", "aws-cni", "iptables", "1.33.1"},
		{4, 8, "6.6.95-flatcar", "flatcar", "4230.2.1", 255, "hetzner", "cilium", "", "1.33.3"},
		{4, 8, "3.10.0-1160.el7.x86_64", "centos", "7", 219, "openstack", "k8s-pod-network", "iptables", "1.9.11"},
		{4, 16, "4.18.0-553.el8_10.x86_64", "rhel", "8.10", 239, "azure", "k8s-pod-network", "iptables", "1.30.14"},
		{4, 16, "5.14.0-503.el9_5.x86_64", "rocky", "9.5", 252, "", "cbr0", "iptables", "1.31.7"},
		{4, 16, debian12, "debian", "12", 252, "", "10-weave", "userspace", "1.24.17"},
		{8, 16, "5.14.0-427.el9_4.x86_64", "rhcos", "4.17", 252, "aws", "multus-cni-network", "", "1.30.7"},
		{8, 16, debian11, "debian", "11", 247, "openstack", "k8s-pod-network", "ipvs", "1.27.16"},
		{8, 32, debian12, "debian", "12", 252, "hetzner", "cilium", "nftables", "1.33.4"},
		{8, 32, debian13, "debian", "13", 257, "azure", "azure", "iptables", "1.34.1"},
		{8, 32, "6.6.96.1-1.azl3", "azurelinux", "3.0", 255, "azure", "azure", "iptables", "1.32.6"},
		{8, 32, "6.1.145", "bottlerocket", "1.44.0", 257, "aws", "aws-cni", "iptables", "1.33.1"},
		{16, 64, "6.6.87+", "cos", "117", 255, "gcp", "k8s-pod-network", "iptables", "1.32.4-gke.1415000"},
		{16, 64, debian11, "debian", "11", 247, "aws", "aws-cni", "iptables", "1.29.15"},
		{16, 64, debian12, "debian", "12", 252, "gcp", "cbr0", "iptables", "1.32.5"},
		{16, 64, "5.4.0-216-generic", "ubuntu", "20.04", 245, "alibaba", "cbr0", "ipvs", "1.26.15"},
		{16, 128, "6.4.0-150600.23.47-default", "sles", "15.6", 254, "", "cilium", "iptables", "1.31.7+k3s1"},
		{64, 256, debian11, "debian", "11", 247, "", "cbr0", "iptables", "1.30.14"},
		{64, 256, debian12, "debian", "12", 252, "aws", "cilium", "", "1.33.4"},
		{64, 256, debian13, "debian", "13", 257, "", "cilium", "", "1.34.1"},
		{96, 384, debian12, "debian", "12", 252, "", "cbr0", "iptables", "1.31.7"},
		{96, 768, debian11, "debian", "11", 247, "aws", "aws-cni", "iptables", "1.29.15"},
		{96, 768, debian13, "debian", "13", 257, "gcp", "cilium", "nftables", "1.34.1"},
		{96, 384, "6.8.0-1029-aws", "ubuntu", "24.04", 255, "aws", "aws-cni", "iptables", "1.33.1"},
		{192, 768, "6.15.9-201.fc42.x86_64", "fedora", "42", 257, "", "cbr0", "nftables", "1.34.1"},
		{192, 1536, "6.16.4-arch1-1", "arch", "", 257, "", "cbr0", "iptables", "1.34.1"},
		{192, 2048, debian12, "debian", "12", 252, "aws", "aws-cni", "iptables", "1.32.5"},
		{448, 6144, debian11, "debian", "11", 247, "aws", "aws-cni", "iptables", "1.29.15"},
		{448, 12288, debian12, "debian", "12", 252, "aws", "aws-cni", "iptables", "1.33.4"},
		{896, 24576, debian12, "debian", "12", 252, "azure", "azure", "iptables", "1.33.4"},
		{896, 24576, debian13, "debian", "13", 257, "", "cilium", "", "1.34.1"},
	} {
		facts := map[string]any{"node.cpus": n.cpus, "node.memory": (n.gib*1016332 + 1) << 10, // firmware and the kernel take 3 %
			"kernel.release": n.release, "kernel.version": leadingVersion(n.release), "os.id": n.os, "os.version": n.os2,
			"systemd.version": n.systemd, "cloud.provider": n.cloud}
		for name, v := range map[string]string{"cni.name": n.cni, "kube_proxy.mode": n.proxy, "kubelet.version": n.kubelet} {
			if v != "" {
				facts[name] = v
			}
		}
		all = append(all, facts)
	}
	return all
}

// withoutOneFact returns nodes that lack one fact each.
func withoutOneFact() []map[string]any {
	var all []map[string]any
	for _, name := range FactNames() {
		all = append(all, usualNodes()[6])
		delete(all[len(all)-1], name)
	}
	return all
}

// leadingVersion returns the fact kernel.version of a release: 6.1.0 of 6.1.0-28-amd64.
func leadingVersion(release string) string {
	end := strings.IndexFunc(release, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 0 {
		return release
	}
	return release[:end]
}

// usualValues returns the values of a fact on the usual nodes.
func (l *loader) usualValues(fact string) (all []any) {
	for _, facts := range l.usual {
		if v := facts[fact]; v != nil && !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}

// exampleOf returns a fact of a usual node, for a message.
func exampleOf(fact string) any { return usualNodes()[7][fact] }

// nodesOf returns the nodes that the literals of a block's comparisons bound, as far as its when includes them: for each outcome of each
// comparison one, in all else like the smallest and the largest usual node that resemble it most.
func (l *loader) nodesOf(b block) (all []map[string]any) {
	q := l.questionOf(b)
	if len(q.names) == 0 {
		return nil
	}
	for base := range q.cases() {
		if is, _ := l.holds(q.when, base); !is {
			continue
		}
		all = append(all, l.complete(base)...)
		for _, name := range q.names {
			for _, v := range q.values[name] {
				facts := maps.Clone(base)
				facts[name] = v
				if is, _ := l.holds(q.when, facts); is && v != base[name] {
					all = append(all, l.complete(facts)[0])
				}
			}
		}
		break
	}
	return all
}

// complete returns one or two nodes with these facts.
func (l *loader) complete(facts map[string]any) []map[string]any {
	facts = maps.Clone(facts)
	if release, is := facts["kernel.release"].(string); is {
		facts["kernel.version"] = leadingVersion(release)
	}
	most, first, last := 0, 0, 0
	for i, usual := range l.usual {
		same := 0
		for name, v := range facts {
			if usual[name] == v {
				same++
			}
		}
		if same > most {
			most, first = same, i
		}
		if same == most {
			last = i
		}
	}
	var all []map[string]any
	for _, i := range slices.Compact([]int{first, last}) {
		node := maps.Clone(l.usual[i])
		maps.Copy(node, facts)
		if version := node["kernel.version"].(string); leadingVersion(node["kernel.release"].(string)) != version {
			node["kernel.release"] = version
		}
		all = append(all, node)
	}
	return all
}

// extremes returns the bounds of a fact on real nodes, or nil. They are wide: Go's runtime needs Linux 3.2 (go.dev/wiki/Linux,
// go1.24), which gains a major version in three or four years; no kernel is built for more than 8192 CPUs (CONFIG_NR_CPUS).
func extremes(fact string) (low, high any) {
	switch fact {
	case "node.cpus":
		return int64(1), int64(8192)
	case "node.memory":
		return int64(1 << 20), int64(1 << 50)
	case "systemd.version":
		return int64(200), int64(999)
	case "kernel.version", "kernel.release":
		return "3.2.0", "19.99"
	case "kubelet.version":
		return "1.0.0", "2.99.0"
	}
	return nil, nil
}

// isPlausible reports whether a real node can have this fact.
func isPlausible(fact string, v any) bool {
	low, high := extremes(fact)
	switch v := v.(type) {
	case int64:
		return v >= low.(int64) && v <= high.(int64)
	case string:
		if low != nil {
			at, err := versionNumbers(v)
			from, _ := versionNumbers(low.(string))
			to, _ := versionNumbers(high.(string))
			return err == nil && slices.Compare(at, from) >= 0 && slices.Compare(at, to) <= 0
		}
		words := closedWords(fact)
		return words == nil && strings.TrimSpace(v) == v || slices.Contains(words, v)
	}
	return false
}

// closedWords returns all values of a fact, or nil if it can have others.
func closedWords(fact string) []string {
	switch fact {
	case "cloud.provider":
		return []string{"aws", "gcp", "azure", "openstack", "hetzner", "digitalocean", "alibaba", ""}
	case "kube_proxy.mode":
		return []string{"iptables", "nftables", "ipvs", "userspace", "kernelspace", ""}
	}
	return nil
}
