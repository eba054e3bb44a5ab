package hosttest

import (
	"reflect"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"nodegate/internal/ruleset"
)

// DiffTables returns how a table that was read over netlink differs from what nft -j said of it, "" where it does not. Lines are
// nft's alone; the elements of a set have no order.
func DiffTables(text, wire *ruleset.NFTTable) string {
	for _, t := range []*ruleset.NFTTable{text, wire} {
		for _, s := range t.Sets {
			slices.SortFunc(s.Elements, func(a, b ruleset.NFTElement) int { return strings.Compare(a.String(), b.String()) })
		}
	}
	return cmp.Diff(text, wire, cmpopts.IgnoreUnexported(ruleset.NFTTable{}), cmpopts.IgnoreFields(ruleset.NFTChain{}, "Line"),
		cmpopts.IgnoreFields(ruleset.NFTRule{}, "Line"), cmpopts.IgnoreFields(ruleset.NFTSet{}, "Line"), cmpopts.EquateEmpty())
}

// DiffSets returns how what was read over netlink of iptables-nft differs from what iptables-nft-save printed: "" where in no line.
func DiffSets(text, wire *ruleset.Set) string {
	if reflect.DeepEqual(text, wire) {
		return "" // go-cmp takes 15 s for 200,000 rules
	}
	return cmp.Diff(text, wire, cmp.AllowUnexported(ruleset.Rule{}), cmpopts.IgnoreUnexported(ruleset.Table{}))
}
