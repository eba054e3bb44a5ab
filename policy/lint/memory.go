package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"nodegate/policy"
	"nodegate/policy/kernels"
)

// demand is a parameter that takes memory from the machine.
type demand struct {
	unit        string
	bytes       int64 // of one unit
	warn, most  int64 // percent of the memory; most is an error
	consequence string
}

// demandOf returns the rule "memory" of a parameter.
func demandOf(key policy.Key) (demand, bool) {
	for _, rule := range kernels.About("memory", string(key)) {
		n := numbersOf(rule.Words[1:4])
		return demand{strings.Join(rule.Words[4:], " "), n[0], n[1], n[2], rule.Effect}, true
	}
	return demand{}, false
}

// need is a parameter that limits the processes, files or mappings of the whole node.
type need struct {
	least, few  int64 // fewer is an error, or a warning
	consequence string
}

// needOf returns the rule "few" of a parameter.
func needOf(key policy.Key) (need, bool) {
	for _, rule := range kernels.Rules("few") {
		if slices.Contains(rule.Words[2:], string(key)) {
			n := numbersOf(rule.Words[:2])
			return need{n[0], n[1], rule.Effect}, true
		}
	}
	return need{}, false
}

func numbersOf(words []string) (all []int64) {
	for _, w := range words {
		n, _ := strconv.ParseInt(w, 10, 64)
		all = append(all, n)
	}
	return all
}

// A value that does not depend on node.memory must not be too large for a usual node (a warning) or for a very large one (an error).
const (
	leastNode = policy.LeastNode // kubelet needs more
	usualNode = 64 << 30
	hugeNode  = 1 << 40
)

// checkMemory reports values that take too much of a node's memory, and values that leave it too little of something.
func (v *survey) checkMemory() hcl.Diagnostics {
	r := &reading{}
	for _, b := range v.blocks {
		key, err := policy.ParseKey(b.Name)
		if b.Type != "sysctl" || err != nil || key.IsGlob() {
			continue
		}
		if found := v.memoryOf(b, key); found != nil {
			r.warnings = append(r.warnings, found)
		}
	}
	return r.warnings
}

// memoryOf judges the value that a block requires for a parameter.
func (v *survey) memoryOf(b policy.Stanza, key policy.Key) *hcl.Diagnostic {
	d, demands := demandOf(key)
	n, needs := needOf(key)
	if !demands && !needs {
		return nil
	}
	var worst *hcl.Diagnostic
	readsMemory := readsAny(b.Expressions(), "node.memory")
	for _, a := range v.answers[b.Range] {
		var found *hcl.Diagnostic
		s := a.Sysctls[0]
		if demands {
			memory, _ := a.facts["node.memory"].(int64)
			found = d.judge(s, memory, readsMemory)
		} else if found = n.judge(s); found != nil {
			found.Detail += onNode(" This happens on %s.", a.facts, valueExpressions(b)...)
		}
		if worst == nil || found != nil && found.Severity == hcl.DiagError && worst.Severity != hcl.DiagError {
			worst = found
		}
	}
	if worst != nil {
		worst.Subject = b.Range.Ptr()
		if b.Get("value") != nil {
			worst.Subject = b.At("value").Ptr()
		}
	}
	return worst
}

// judge compares the number that s writes with the memory of a node.
func (d demand) judge(s policy.Sysctl, memory int64, known bool) *hcl.Diagnostic {
	n, bounded := s.Written(s.Min)
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

// judge compares the number that s writes with the needs of a node.
func (n need) judge(s policy.Sysctl) *hcl.Diagnostic {
	most, bounded := s.Written(s.Max)
	if !bounded || most >= n.few {
		return nil
	}
	found := &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: "Too few", Detail: fmt.Sprintf(
		"%s must be %s here: %s. A node needs at least %d.", s.Key, s.Want(), n.consequence, n.few)}
	if most < n.least {
		found.Severity = hcl.DiagError
	}
	return found
}

func inGiB(bytes float64) string {
	if bytes > 9999<<30 {
		return fmt.Sprintf("%.4g TiB", bytes/(1<<40))
	}
	return fmt.Sprintf("%.4g GiB", bytes/(1<<30))
}
