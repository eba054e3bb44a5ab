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
	"nodegate/internal/plain"
	"nodegate/policy"
)

// state: kubelet exits if its saved state belongs to another configuration or another machine.
func state() checks.Problem {
	return checks.Problem{
		Name: "kubelet.state", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "The saved state of kubelet's CPU or memory manager is for another policy or other CPUs than the " +
			"machine has, or is damaged; or the saved state of Pod resources or devices is damaged.",
		Symptom: "After cpuManagerPolicy changed or the machine was resized, kubelet restarts forever: \"configured " +
			"policy \\\"static\\\" differs from state checkpoint policy \\\"none\\\", please drain this node and delete the CPU manager " +
			"checkpoint file\".",
		How: "cpu_manager_state and memory_manager_state in --root-dir must be JSON, and their policyName must equal " +
			"cpuManagerPolicy and memoryManagerPolicy. With the static policy, without strict-cpu-reservation, the CPUs in " +
			"cpu_manager_state must be those in /sys/devices/system/cpu/online. allocated_pods_state and actuated_pods_state (read by " +
			"kubelet 1.33 and later) and dra_manager_state (1.34 and later) must be JSON. Checksums are not verified. Skipped if the " +
			"command line of kubelet's unit is unknown.",
		Remedy:   "drain the node, stop kubelet and remove the named file; kubelet creates a new one",
		TradeOff: "Without its state kubelet reassigns CPUs and memory of running Pods: drain the node first.",
		Ref:      "https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/#changing-the-cpu-manager-policy",
		Inspect:  inspectState,
	}
}

// checkpoint is the state file of kubelet's CPU or memory manager. From 1.37 on Data repeats it in
// JSON, and takes precedence.
type checkpoint struct {
	Policy  string                    `json:"policyName"`
	CPUs    string                    `json:"defaultCpuSet"`
	Entries map[string]map[string]any `json:"entries"`
	Pods    map[string]map[string]any `json:"podEntries"`
	Data    string                    `json:"data"`
}

// stateFile describes a file of kubelet's state: the feature gate that makes kubelet read it, the
// setting that must match its policy, and the minor version from which the gate is on by default.
type stateFile struct {
	name, gate, setting, byDefault string
	since                          int
}

func inspectState(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.Passing("state that kubelet accepts")
	k, known, err := readConfigAndCommand(h, &s)
	if !known {
		return s, err
	}
	mends, err := mendsOf(h)
	if err != nil {
		return s, err
	}
	var wrong, remove []string
	for _, f := range []stateFile{
		{"cpu_manager_state", "CPUManager", "cpuManagerPolicy", "none", 0},
		{"memory_manager_state", "MemoryManager", "memoryManagerPolicy", "None", 0},
		{"allocated_pods_state", "InPlacePodVerticalScaling", "", "", 33}, {"actuated_pods_state", "InPlacePodVerticalScaling", "", "", 33},
		{"dra_manager_state", "DynamicResourceAllocation", "", "", 34},
	} {
		name := path.Join(cmp.Or(k.Flags["root-dir"].Value, "/var/lib/kubelet"), f.name)
		text, found, err := config.ReadIfAny(config.As(h.Files, config.Checkpoint), name)
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
		at := mends.Writes(name)
		switch {
		case mistake != "" && at != "":
			s.Evidence = append(s.Evidence, checks.Seen(at, "replaces "+name+" before kubelet starts"))
		case mistake != "" && mends.Unread != nil:
			return s, fmt.Errorf("%s %s, unless a command before kubelet's start replaces it: %w", name, mistake, mends.Unread)
		case mistake != "":
			wrong, remove = append(wrong, name+" "+mistake), append(remove, plain.Quote(name))
			s.Evidence = append(s.Evidence, checks.Seen(name, describeState(text)))
			if said := k.Values[f.setting]; said.Value != "" {
				s.Evidence = append(s.Evidence, checks.Seen(said.From.Source, said.From.Text))
			}
		}
	}
	if wrong != nil {
		s.Differs(strings.Join(wrong, "; "), "drain the node, then run `systemctl stop "+p.Gate.Unit+"; rm "+strings.Join(remove, " ")+
			"; systemctl start "+p.Gate.Unit+"`; kubelet creates a new file")
	}
	return s, nil
}

// stateMistake returns why kubelet exits over a state file, as a phrase that completes "FILE ...", or "".
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
		return "", nil // the format of a later kubelet
	}
	policy := cmp.Or(k.Values[f.setting].Value, f.byDefault)
	if c.Policy != policy {
		return fmt.Sprintf("was saved with policy %s, but kubelet has %s", c.Policy, policy), nil
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
	has, kept := parseCPUList(online), parseCPUList(strings.Join(lists, ","))
	if has == nil || kept == nil || slices.Equal(has, kept) {
		return "", nil
	}
	return fmt.Sprintf("has %d CPUs, but the machine has CPUs %s", len(kept), strings.TrimSpace(online)), nil
}

// parseCPUList returns the sorted numbers of a list like "0-3,8", or nil if it is not a list.
func parseCPUList(list string) (all []int) {
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

// describeState returns the policy in a file of state. The rest of the file concerns Pods.
func describeState(text []byte) string {
	var c checkpoint
	switch {
	case len(text) == 0:
		return "empty"
	case !json.Valid(text):
		return "not JSON"
	}
	if json.Unmarshal(text, &c) == nil && c.Data != "" {
		_ = json.Unmarshal([]byte(c.Data), &c) // it was read before
	}
	return strings.TrimSuffix("policyName "+c.Policy+", defaultCpuSet "+c.CPUs, ", defaultCpuSet ")
}
