package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// memoryManager: kubelet exits if the memory manager's reservations do not add up.
func memoryManager() checks.Problem {
	return checks.Problem{
		Name: "kubelet.memory-manager", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "kubelet's memory manager has the policy Static, and reservedMemory differs from the sum of the other reservations, or " +
			"names a NUMA node that the machine does not have; or the policy is unknown.",
		Symptom: "kubelet restarts forever: \"the total amount \\\"0\\\" of type \\\"memory\\\" is not equal to the value \\\"100Mi\\\" " +
			"determined by Node Allocatable feature\".",
		How: "With memoryManagerPolicy Static, the memory in reservedMemory (or --reserved-memory) must equal kubeReserved plus " +
			"systemReserved plus evictionHard's memory.available, which is 100Mi if evictionHard is unset; a percentage is of MemTotal in " +
			"/proc/meminfo. reservedMemory must not contain huge pages, because the other settings cannot reserve them. The NUMA nodes are " +
			"those in /sys/devices/system/node. Skipped if the command line of kubelet's unit is unknown.",
		Remedy: "correct reservedMemory",
		Ref:    "https://kubernetes.io/docs/tasks/administer-cluster/memory-manager/#reserved-memory-flag",
		Inspect: func(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectMemoryManager(ctx, h)
		},
	}
}

func inspectMemoryManager(ctx context.Context, h *host.Host) (checks.State, error) {
	s := checks.Passing("reservations that the memory manager accepts")
	k, known, err := readConfigAndCommand(h, &s)
	if !known {
		return s, err
	}
	manager := k.Values["memoryManagerPolicy"]
	if on, set := k.Gate("MemoryManager"); set && !on {
		return s, nil
	}
	switch manager.Value {
	case "", "None":
		return s, nil
	case "Static":
	default: // NewManager in pkg/kubelet/cm/memorymanager/memory_manager.go
		addSeen(&s, manager)
		s.Differs(fmt.Sprintf("memoryManagerPolicy is %q; it must be None or Static", manager.Value), "set memoryManagerPolicy to None or Static")
		return s, nil
	}
	parts, want, valid, err := memoryReservation(ctx, h, k)
	if err != nil {
		return s, err
	}
	all, order, valid2 := reservedMemory(k)
	if !valid || !valid2 {
		s.Skip = "a reservation is not a valid quantity, see kubelet.resources and kubelet.values"
		return s, nil
	}
	nodes, err := numaNodes(h)
	if err != nil {
		return s, err
	}
	var wrong []string
	sums := map[string]float64{"memory": 0}
	for _, r := range order {
		if !slices.Contains(nodes, r.node) {
			wrong = append(wrong, fmt.Sprintf("reservedMemory names NUMA node %s, and the machine has %s", r.node, strings.Join(nodes, ", ")))
			addSeen(&s, r.from)
		}
		sums[r.resource] += r.amount
	}
	for _, resource := range slices.Sorted(maps.Keys(sums)) {
		due := 0.0
		if resource == "memory" {
			due = want
		}
		switch sum := sums[resource]; {
		case resource == "memory" && sum == 0 && due == 0: // NewPolicyStatic
			wrong = append(wrong, "memoryManagerPolicy is Static, and no memory is reserved")
		case sum != due:
			wrong = append(wrong, fmt.Sprintf("reservedMemory has %s of %s, but kubelet reserves %s", quantity(sum), resource, quantity(due)))
		default:
			continue
		}
		addSeen(&s, append([]config.KubeletValue{manager}, append(all[resource], parts...)...)...)
	}
	if wrong != nil {
		s.Differs(strings.Join(wrong, "; "), "set reservedMemory to "+quantity(want)+" of memory in total: kubeReserved + systemReserved + "+
			"evictionHard's memory.available")
	}
	return s, nil
}

// quantity prints bytes as a Kubernetes quantity.
func quantity(bytes float64) string {
	const kib, mib = 1 << 10, 1 << 20
	switch n := int64(bytes); {
	case n >= mib && n%mib == 0:
		return fmt.Sprintf("%dMi", n/mib)
	case n >= kib && n%kib == 0:
		return fmt.Sprintf("%dKi", n/kib)
	default:
		return strconv.FormatInt(n, 10)
	}
}

// memoryReservation returns the memory in bytes that kubelet keeps from Pods, and the settings that determine it
// (GetNodeAllocatableReservation in pkg/kubelet/cm/node_container_manager_linux.go).
func memoryReservation(ctx context.Context, h *host.Host, k config.Kubelet) (
	parts []config.KubeletValue, sum float64, valid bool, err error,
) {
	for _, m := range [][2]string{{"kubeReserved", "kube-reserved"}, {"systemReserved", "system-reserved"}} {
		if v, set := mapEntries(k, m[0], m[1], "=")["memory"]; set {
			amount, isQuantity := parseQuantity(v.Value)
			if !isQuantity {
				return nil, 0, false, nil
			}
			parts, sum = append(parts, v), sum+amount
		}
	}
	if k.Flags["experimental-allocatable-ignore-eviction"].Value != "" {
		return parts, sum, true, nil
	}
	eviction := mapEntries(k, "evictionHard", "eviction-hard", "<")
	v, set := eviction["memory.available"]
	_, empty := k.Values["evictionHard"] // set to an empty map
	empty = empty || k.Given("eviction-hard") != nil
	if !set && (len(eviction) == 0 && !empty || k.Values["mergeDefaultEvictionSettings"].Value == "true") {
		v, set = config.KubeletValue{Value: "100Mi"}, true // DefaultEvictionHard
	}
	if !set {
		return parts, sum, true, nil
	}
	parts = append(parts, v)
	if share, is := strings.CutSuffix(v.Value, "%"); is {
		percent, bad := strconv.ParseFloat(share, 32)
		fact, known := h.Fact(ctx, "node.memory")
		has, _ := fact.(int64)
		if !known {
			return nil, 0, false, errors.New("/proc/meminfo does not show the size of memory")
		}
		// GetThresholdQuantity computes with a float32.
		return parts, sum + float64(int64(float64(has)*float64(float32(percent)/100))), bad == nil, nil
	}
	amount, isQuantity := parseQuantity(v.Value)
	return parts, sum + amount, isQuantity, nil
}

// memoryPart is one amount in reservedMemory.
type memoryPart struct {
	node, resource string
	amount         float64
	from           config.KubeletValue
}

// reservedMemory returns reservedMemory of the configuration, or of the flag, which replaces it:
// --reserved-memory 0:memory=1Gi,hugepages-2Mi=1Gi;1:memory=2Gi.
func reservedMemory(k config.Kubelet) (all map[string][]config.KubeletValue, parts []memoryPart, valid bool) {
	all, valid = map[string][]config.KubeletValue{}, true
	add := func(node, resource string, v config.KubeletValue) {
		amount, isQuantity := parseQuantity(v.Value)
		valid = valid && isQuantity
		parts = append(parts, memoryPart{node, resource, amount, v})
		all[resource] = append(all[resource], v)
	}
	if given := k.Given("reserved-memory"); given != nil {
		for group := range strings.SplitSeq(strings.Join(given, ";"), ";") {
			node, limits, _ := strings.Cut(group, ":")
			for limit := range strings.SplitSeq(limits, ",") {
				resource, value, _ := strings.Cut(limit, "=")
				add(strings.TrimSpace(node), resource, config.KubeletValue{Value: value, From: k.Flags["reserved-memory"].From})
			}
		}
		return all, parts, valid
	}
	limit := regexp.MustCompile(`^reservedMemory\.(\d+)\.limits\.(.+)$`)
	for _, key := range slices.Sorted(maps.Keys(k.Values)) {
		if m := limit.FindStringSubmatch(key); m != nil {
			node := k.Values["reservedMemory."+m[1]+".numaNode"].Value
			if node == "" {
				node = "0"
			}
			add(node, m[2], k.Values[key])
		}
	}
	return all, parts, valid
}

// numaNodes returns the machine's NUMA nodes; a kernel without NUMA has node 0 only.
func numaNodes(h *host.Host) ([]string, error) {
	names, err := h.ReadDirIfAny("/sys/devices/system/node")
	var nodes []string
	for _, name := range names {
		if number, is := strings.CutPrefix(name, "node"); is && regexp.MustCompile(`^\d+$`).MatchString(number) {
			nodes = append(nodes, number)
		}
	}
	if nodes == nil {
		nodes = []string{"0"}
	}
	return nodes, err
}
