package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

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
func demandOf(key Key) (demand, bool) {
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
func needOf(key Key) (need, bool) {
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
	leastNode = 512 << 20 // kubelet needs more
	usualNode = 64 << 30
	hugeNode  = 1 << 40
)

// checkMemory reports values that take too much of a node's memory, and values that leave it too little of something.
func (v *survey) checkMemory() hcl.Diagnostics {
	r := &reader{}
	for _, b := range v.blocks {
		key, err := ParseKey(b.Name)
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
func (v *survey) memoryOf(b block, key Key) *hcl.Diagnostic {
	d, demands := demandOf(key)
	n, needs := needOf(key)
	if !demands && !needs {
		return nil
	}
	var worst *hcl.Diagnostic
	readsMemory := readsAny(b.expressions(), "node.memory")
	for _, a := range v.answers[b.Range] {
		var found *hcl.Diagnostic
		s := a.Sysctls[0]
		if demands {
			memory, _ := a.facts["node.memory"].(int64)
			found = d.judge(s, memory, readsMemory)
		} else if found = n.judge(s); found != nil {
			found.Detail += onNode(" This happens on %s.", a.facts, b.valueExpressions()...)
		}
		if worst == nil || found != nil && found.Severity == hcl.DiagError && worst.Severity != hcl.DiagError {
			worst = found
		}
	}
	if worst != nil {
		worst.Subject = b.Range.Ptr()
		if b.get("value") != nil {
			worst.Subject = b.at("value").Ptr()
		}
	}
	return worst
}

// numbers returns the values that the requirement allows, if it lists them and all are numbers.
func (s Sysctl) numbers() []int64 {
	values := s.OneOf
	if s.Value != "" {
		values = []string{s.Value}
	}
	var all []int64
	for _, v := range values {
		n, err := strconv.ParseInt(v, 0, 64) // the kernel reads 0x10 and 010 too; a larger number becomes the largest int64
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return nil
		}
		all = append(all, n)
	}
	return all
}

// written returns the number that is written if another one is found: the first of one_of, or the given bound.
func (s Sysctl) written(bound *int64) (int64, bool) {
	if numbers := s.numbers(); numbers != nil {
		return numbers[0], true
	}
	if bound == nil {
		return 0, false
	}
	return *bound, true
}

// judge compares the number that s writes with the memory of a node.
func (d demand) judge(s Sysctl, memory int64, known bool) *hcl.Diagnostic {
	n, bounded := s.written(s.Min)
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
func (n need) judge(s Sysctl) *hcl.Diagnostic {
	most, bounded := s.written(s.Max)
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

// CanStopMachine reports whether the value, of the parameter or of one that its glob matches, could stop a small machine: it takes much
// of the memory, or leaves too little of something. vm.overcommit_memory does only with 2.
func (s Sysctl) CanStopMachine() bool {
	covers := func(key string) bool {
		matches, _ := path.Match(string(s.Key), key)
		return matches
	}
	n, isNumber := s.written(s.Min)
	return slices.ContainsFunc(kernels.Rules("memory"), func(rule kernels.Rule) bool {
		d, _ := demandOf(Key(rule.Words[0]))
		return covers(rule.Words[0]) && (!isNumber || d.judge(s, leastNode, true) != nil)
	}) || slices.ContainsFunc(kernels.Rules("few"), func(rule kernels.Rule) bool {
		return slices.ContainsFunc(rule.Words[2:], covers) && (!isNumber || n < numbersOf(rule.Words[:2])[1])
	}) || covers("vm/overcommit_ratio") || covers("vm/overcommit_kbytes") || covers("vm/overcommit_memory") && s.strictOvercommit()
}

// strictOvercommit reports whether vm.overcommit_memory makes the kernel limit the memory that programs reserve.
func (s Sysctl) strictOvercommit() bool {
	mode, _ := s.written(s.Min)
	return mode == 2
}

func inGiB(bytes float64) string {
	if bytes > 9999<<30 {
		return fmt.Sprintf("%.4g TiB", bytes/(1<<40))
	}
	return fmt.Sprintf("%.4g GiB", bytes/(1<<30))
}

// checkOvercommit reports a limit of the memory that programs may reserve which is too low for a node: they reserve more than
// they use. Source: the kernel's Documentation/mm/overcommit-accounting.rst.
func (p *Policy) checkOvercommit(r *reader) {
	mode := p.findSysctl("vm/overcommit_memory")
	if r.catalogue == nil || mode == nil || !mode.strictOvercommit() {
		return
	}
	if kbytes := p.findSysctl("vm/overcommit_kbytes"); kbytes != nil {
		if most, bounded := kbytes.written(kbytes.Max); !bounded || most != 0 { // 0: the ratio counts
			if bounded && most < leastNode>>10 {
				r.errorf(kbytes.Range, "Takes the memory", "With vm.overcommit_memory = 2 (%s) all programs together can reserve only the %d kB of "+
					"vm.overcommit_kbytes: no node starts with so little. Set vm.overcommit_ratio to 80 or more instead.", place(mode.Range), most)
			}
			return
		}
	}
	percent, at, is := int64(50), mode, "the kernel's default"
	if ratio := p.findSysctl("vm/overcommit_ratio"); ratio != nil {
		if most, bounded := ratio.written(ratio.Max); bounded {
			percent, at, is = most, ratio, place(ratio.Range)
		}
	}
	if percent >= 80 {
		return
	}
	report := r.warnf
	if percent < 25 {
		report = r.errorf
	}
	report(at.Range, "Takes the memory", "With vm.overcommit_memory = 2 (%s) programs can reserve only %d %% of the memory (%s), and most "+
		"reserve far more than they use: allocations fail on a node with free memory. Set vm.overcommit_ratio to 80 or more, or "+
		"vm.overcommit_memory to 1, as kubelet does.", place(mode.Range), percent, is)
}
