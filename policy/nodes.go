package policy

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"nodegate/policy/kernels"
)

// usualNodes returns the facts of nodes that exist. A new node does not know its CNI, kube-proxy and kubelet yet.
func usualNodes() (all []map[string]any) {
	for _, rule := range kernels.Rules("node") {
		words := make([]string, len(rule.Words))
		numbers := make([]int64, len(rule.Words))
		for i, w := range rule.Words {
			words[i] = strings.TrimPrefix(w, "-")
			numbers[i], _ = strconv.ParseInt(w, 10, 64)
		}
		facts := map[string]any{"node.cpus": numbers[0], "node.memory": (numbers[1]*1016332 + 1) << 10, // firmware and the kernel take 3 %
			"kernel.release": words[2], "kernel.version": leadingVersion(words[2]), "os.id": words[3], "os.version": words[4],
			"systemd.version": numbers[5], "cloud.provider": words[6]}
		for i, name := range []string{"cni.name", "kube_proxy.mode", "kubelet.version"} {
			if words[7+i] != "" {
				facts[name] = words[7+i]
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
