package policy

import (
	"errors"
	"path"
	"slices"
	"strconv"

	"nodegate/policy/kernels"
)

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

// Written returns the number that is written if another one is found: the first of one_of, or the given bound.
func (s Sysctl) Written(bound *int64) (int64, bool) {
	if numbers := s.numbers(); numbers != nil {
		return numbers[0], true
	}
	if bound == nil {
		return 0, false
	}
	return *bound, true
}

// LeastNode is the memory in bytes of the smallest node: kubelet needs more.
const LeastNode = 512 << 20

// CanStopMachine reports whether the value, of the parameter or of one that its glob matches, could stop a small machine: it takes much
// of the memory, or leaves too little of something. vm.overcommit_memory does only with 2.
func (s Sysctl) CanStopMachine() bool {
	covers := func(key string) bool {
		matches, _ := path.Match(string(s.Key), key)
		return matches
	}
	n, isNumber := s.Written(s.Min)
	return slices.ContainsFunc(kernels.Rules("memory"), func(rule kernels.Rule) bool {
		return covers(rule.Words[0]) && (!isNumber || float64(n)*float64(rule.Number(1)) > LeastNode*float64(rule.Number(2))/100)
	}) || slices.ContainsFunc(kernels.Rules("few"), func(rule kernels.Rule) bool {
		return slices.ContainsFunc(rule.Words[2:], covers) && (!isNumber || n < rule.Number(1))
	}) || covers("vm/overcommit_ratio") || covers("vm/overcommit_kbytes") || covers("vm/overcommit_memory") && n == 2
}
