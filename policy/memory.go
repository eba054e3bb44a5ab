package policy

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// demand is a parameter that takes memory from the machine.
type demand struct {
	key         Key
	unit        string
	bytes       int64 // of one unit
	warn, most  int64 // percent of the memory; most is an error
	consequence string
}

// demands returns the parameters that take memory. Sources: the kernel's Documentation/admin-guide/sysctl/vm.rst and mm/hugetlbpage.rst.
func demands() []demand {
	return []demand{
		{"vm/min_free_kbytes", "kB", 1 << 10, 10, 50, "the kernel keeps it free and kills processes for it"},
		{"vm/nr_hugepages", "pages of at least 2 MiB", 2 << 20, 80, 100,
			"nothing else can use it, and the kernel reserves fewer pages if it is not free"},
		{"vm/dirty_bytes", "bytes", 1, 50, 0, "writers never wait for the disk before memory is full"},
		{"vm/dirty_background_bytes", "bytes", 1, 50, 0, "the kernel never begins to write before memory is full"},
	}
}

// limits returns the numbers that the kernel accepts for a parameter, or false. Sources: include/linux/threads.h (PID_MAX_LIMIT),
// kernel/pid.c (pid_max_min), kernel/fork.c (MIN_THREADS, MAX_THREADS), fs/file.c (sysctl_nr_open_min, sysctl_nr_open_max); all of a
// 64-bit kernel.
func limits(key Key) (least, most int64, known bool) {
	switch key {
	case "kernel/pid_max":
		return 301, 4 << 20, true
	case "kernel/threads-max":
		return 1, 1<<30 - 1, true
	case "fs/nr_open":
		return 64, 1<<31 - 64, true
	}
	return 0, 0, false
}

// Nodes for which a value is judged: kubelet needs more memory than the least one has, and few machines have more CPUs. A value
// that does not depend on node.memory must not be too large for a usual node (a warning) or for a very large one (an error).
const (
	mostCPUs  = 1024
	leastNode = 512 << 20
	usualNode = 64 << 30
	hugeNode  = 1 << 40
)

// checkMemory reports values that take too much of a node's memory, and numbers that the kernel refuses.
func (l *loader) checkMemory() hcl.Diagnostics {
	r := &reader{}
	for _, b := range l.blocks {
		key, err := ParseKey(b.Name)
		i := slices.IndexFunc(demands(), func(d demand) bool { return d.key == key })
		if _, _, limited := limits(key); b.Type != "sysctl" || err != nil || i < 0 && !limited {
			continue
		}
		var worst *hcl.Diagnostic
		for _, facts := range imagine(l.candidates(b.expressions())) {
			if cpus, _ := facts["node.cpus"].(int64); cpus > mostCPUs {
				continue
			}
			node := l.imagined(facts)
			node.blocks = []block{b}
			node.decode()
			for _, s := range applying(node.policy.Sysctls, func(s Sysctl) bool { return s.Applies() }) {
				found := s.exceedsLimits()
				if i >= 0 {
					found = demands()[i].judge(s, facts)
				}
				if worst == nil || found != nil && found.Severity == hcl.DiagError && worst.Severity != hcl.DiagError {
					worst = found
				}
			}
		}
		if worst != nil {
			worst.Subject = b.Range.Ptr()
			if b.get("value") != nil {
				worst.Subject = b.at("value").Ptr()
			}
			r.warnings = append(r.warnings, worst)
		}
	}
	return r.warnings
}

// judge compares the least value that satisfies s with the memory of a node.
func (d demand) judge(s Sysctl, facts map[string]any) *hcl.Diagnostic {
	n, bounded := s.least()
	memory, known := facts["node.memory"].(int64)
	if !bounded || known && memory < leastNode {
		return nil
	}
	forWarning, forError, of := memory, memory, fmt.Sprintf("a node with %s", inGiB(float64(memory)))
	if !known {
		forWarning, forError, of = usualNode, hugeNode, "a usual node; if yours are larger, write when = node.memory >= BYTES"
	}
	taken := float64(n) * float64(d.bytes)
	found := &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: "Takes the memory"}
	percent := d.warn
	switch {
	case d.most > 0 && taken > float64(forError)*float64(d.most)/100:
		found.Severity, percent = hcl.DiagError, d.most
	case taken <= float64(forWarning)*float64(d.warn)/100:
		return nil
	}
	found.Detail = fmt.Sprintf("%s is in %s: %d is %s, and %s. This is more than %d %% of the memory of %s.",
		s.Key, d.unit, n, inGiB(taken), d.consequence, percent, of)
	return found
}

// TakesMemory reports whether a wrong value of a parameter can leave a machine without memory.
func TakesMemory(key Key) bool {
	return slices.ContainsFunc(demands(), func(d demand) bool { return d.key == key && d.most > 0 })
}

func inGiB(bytes float64) string { return fmt.Sprintf("%.4g GiB", bytes/(1<<30)) }

// exceedsLimits reports a number that the kernel refuses.
func (s Sysctl) exceedsLimits() *hcl.Diagnostic {
	least, most, known := limits(s.Key)
	low, hasLow := s.least()
	high, hasHigh := s.most()
	if s.OneOf != nil && hasLow {
		low, high = s.numbers()[0], s.numbers()[0] // apply writes the first one
	}
	if !known || (!hasLow || low <= most) && (!hasHigh || high >= least) {
		return nil
	}
	return &hcl.Diagnostic{
		Severity: hcl.DiagError, Summary: "Out of range",
		Detail: fmt.Sprintf("%s must be %s here; the kernel accepts %d to %d.", s.Key, s.Want(), least, most),
	}
}
