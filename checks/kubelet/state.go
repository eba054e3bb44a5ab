package kubelet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// state: kubelet exits over what it wrote down for another configuration, or another machine.
func state() checks.Problem {
	return checks.Problem{
		Name: "kubelet.state", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "What kubelet keeps of its CPU and memory manager is of another policy than its configuration, of other CPUs than the machine " +
			"has, or damaged; or what it keeps of Pods' resources or devices is damaged.",
		Symptom: "After cpuManagerPolicy was changed, or the machine resized, kubelet restarts for ever: \"configured policy \\\"static\\\" " +
			"differs from state checkpoint policy \\\"none\\\", please drain this node and delete the CPU manager checkpoint file\".",
		How: "cpu_manager_state and memory_manager_state of --root-dir are JSON, and their policyName is cpuManagerPolicy and " +
			"memoryManagerPolicy. With the policy static, without strict-cpu-reservation, the CPUs in the first are those of " +
			"/sys/devices/system/cpu/online. allocated_pods_state and actuated_pods_state are JSON, which kubelet reads from 1.33 on, and " +
			"dra_manager_state is, from 1.34 on. Sums in these files are not checked. Nothing is read where the command line " +
			"of kubelet's unit cannot be known.",
		Remedy:   "drain the node, stop kubelet, and remove the file that is named: kubelet makes a new one",
		TradeOff: "Without its state kubelet gives CPUs and memory to Pods that run anew: drain the node before.",
		Ref:      "https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/#changing-the-cpu-manager-policy",
		Inspect:  inspectState,
	}
}

// checkpoint is what kubelet writes for its CPU and memory manager. From 1.37 on Data has the same in JSON, and counts.
type checkpoint struct {
	Policy  string                    `json:"policyName"`
	CPUs    string                    `json:"defaultCpuSet"`
	Entries map[string]map[string]any `json:"entries"`
	Pods    map[string]map[string]any `json:"podEntries"`
	Data    string                    `json:"data"`
}

// stateFile is a file of kubelet's state: the feature gate without which it is not read, the setting whose policy it has, and the minor
// version from which the gate is on by itself.
type stateFile struct {
	name, gate, setting, byDefault string
	since                          int
}

func inspectState(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("state that kubelet accepts")
	k, known, err := readCommand(h, &s)
	if !known {
		return s, err
	}
	var wrong []string
	for _, f := range []stateFile{
		{"cpu_manager_state", "CPUManager", "cpuManagerPolicy", "none", 0},
		{"memory_manager_state", "MemoryManager", "memoryManagerPolicy", "None", 0},
		{"allocated_pods_state", "InPlacePodVerticalScaling", "", "", 33}, {"actuated_pods_state", "InPlacePodVerticalScaling", "", "", 33},
		{"dra_manager_state", "DynamicResourceAllocation", "", "", 34},
	} {
		name := path.Join(cmp.Or(k.Flags["root-dir"].Value, "/var/lib/kubelet"), f.name)
		text, found, err := h.ReadIfAny(name)
		if err != nil {
			return s, err
		}
		if !found || k.Values["featureGates."+f.gate].Value == "false" {
			continue
		}
		mistake, err := stateMistake(ctx, h, k, text, f)
		if err != nil {
			return s, err
		}
		if mistake != "" {
			wrong = append(wrong, name+" "+mistake)
			s.Evidence = append(s.Evidence, checks.Seen(name, firstWords(text)))
			if said := k.Values[f.setting]; said.Value != "" {
				s.Evidence = append(s.Evidence, checks.Seen(said.From.Source, said.From.Text))
			}
		}
	}
	if wrong != nil {
		s.Differs(strings.Join(wrong, "; "), "")
	}
	return s, nil
}

// stateMistake returns why kubelet exits over a file of its state, in words that complete "FILE ...", or "".
func stateMistake(ctx context.Context, h *host.Host, k config.Kubelet, text []byte, f stateFile) (string, error) {
	const damaged = "is damaged"
	if f.setting == "" {
		if json.Valid(text) {
			return "", nil
		}
		if minor, err := h.KubeletMinor(ctx); err != nil || minor < f.since {
			return "", err
		}
		return damaged, nil
	}
	var c checkpoint
	if !json.Valid(text) {
		return damaged, nil
	}
	if json.Unmarshal(text, &c) != nil || c.Data != "" && json.Unmarshal([]byte(c.Data), &c) != nil || c.Policy == "" {
		return "", nil // of a kubelet to come
	}
	policy := cmp.Or(k.Values[f.setting].Value, f.byDefault)
	if c.Policy != policy {
		return fmt.Sprintf("is of the policy %s, and kubelet has %s", c.Policy, policy), nil
	}
	options := "cpuManagerPolicyOptions"
	strict := k.Values[options+".strict-cpu-reservation"].Value == "true" || k.Flags["cpu-manager-policy-options"].Value != ""
	if policy != "static" || c.CPUs == "" || c.Pods != nil || strict {
		return "", nil
	}
	online, err := h.Text("/sys/devices/system/cpu/online")
	if err != nil {
		return "", err
	}
	lists := []string{c.CPUs}
	for _, containers := range c.Entries {
		for _, cpus := range containers {
			lists = append(lists, fmt.Sprint(cpus))
		}
	}
	has, kept := cpus(online), cpus(strings.Join(lists, ","))
	if has == nil || kept == nil || slices.Equal(has, kept) {
		return "", nil
	}
	return fmt.Sprintf("has %d CPUs, and the machine %s", len(kept), strings.TrimSpace(online)), nil
}

// cpus returns the numbers of a list like "0-3,8", sorted; nil where it is none.
func cpus(list string) (all []int) {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		const most = 8192 // NR_CPUS of any kernel
		if err != nil || err2 != nil || from < 0 || to < from || to >= most {
			return nil
		}
		for ; from <= to; from++ {
			all = append(all, from)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// firstWords returns the beginning of a file as evidence.
func firstWords(text []byte) string {
	const few = 120
	if len(text) == 0 {
		return "empty"
	}
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, string(text[:min(len(text), few)])), "")
}
