package hosttest

import (
	"reflect"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"nodegate/internal/ruleset"
)

// DiffTables returns the difference between a table that was read over netlink and the output of nft -j, or "". It ignores line numbers,
// which only nft's output has, and the order of a set's elements.
func DiffTables(text, wire *ruleset.NFTTable) string {
	for _, t := range []*ruleset.NFTTable{text, wire} {
		for _, s := range t.Sets {
			slices.SortFunc(s.Elements, func(a, b ruleset.NFTElement) int { return strings.Compare(a.String(), b.String()) })
		}
	}
	return cmp.Diff(text, wire, cmpopts.IgnoreUnexported(ruleset.NFTTable{}), cmpopts.IgnoreFields(ruleset.NFTChain{}, "Line"),
		cmpopts.IgnoreFields(ruleset.NFTRule{}, "Line"), cmpopts.IgnoreFields(ruleset.NFTSet{}, "Line"), cmpopts.EquateEmpty())
}

// DiffSets returns the difference between the rules of iptables-nft that were read over netlink and
// the output of iptables-nft-save, or "".
func DiffSets(text, wire *ruleset.Set) string {
	if reflect.DeepEqual(text, wire) {
		return "" // go-cmp takes 15 s for 200,000 rules
	}
	return cmp.Diff(text, wire, cmp.AllowUnexported(ruleset.Rule{}), cmpopts.IgnoreUnexported(ruleset.Table{}))
}
