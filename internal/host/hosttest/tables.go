package hosttest

import (
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
