package nftables_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
	"nodegate/internal/host/nftables"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

const testdata = "../../audit/proxy/testdata/"

// scratch is a separate network namespace for the test.
func scratch(t testing.TB) *netns.Namespace {
	t.Helper()
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "nft")
	n, err := netns.New(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { n.Close() })
	return n
}

// nft runs nft in the thread's namespace.
func nft(stdin string, args ...string) (string, error) {
	cmd := exec.Command("nft", args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("nft %v: %w\n%.2000s", args, err, errs.String())
	}
	return out.String(), nil
}

// recorded returns a recorded listing of nft in a loadable form: nft lists maps before the chains
// to which they lead, and reads a handle as a position.
func recorded(t testing.TB, name string) string {
	t.Helper()
	var listing struct {
		NFTables []map[string]map[string]any `json:"nftables"`
	}
	require.NoError(t, json.Unmarshal([]byte(string(require.ReadFile(t, name))), &listing))
	var sorted []any
	for _, kind := range []string{"table", "chain", "set", "map", "rule"} {
		for _, object := range listing.NFTables {
			o := object[kind]
			if o == nil || o["table"] != ruleset.KubeProxyTable && o["name"] != ruleset.KubeProxyTable {
				continue
			}
			delete(o, "handle")
			sorted = append(sorted, object)
		}
	}
	text, err := json.Marshal(map[string]any{"nftables": sorted})
	require.NoError(t, err)
	return string(text)
}

// both reads a table in the thread's namespace over netlink and by nft -j.
func both(t testing.TB, family string) (wire, text *ruleset.NFTTable, err error) {
	wire, err = nftables.Read(t.Context(), family)
	if err != nil {
		return nil, nil, err
	}
	listing, err := nft("", "-j", "list", "table", family, ruleset.KubeProxyTable)
	if err != nil {
		return nil, nil, err
	}
	set, err := ruleset.Parse("", strings.NewReader(listing))
	if err != nil {
		return nil, nil, err
	}
	if len(set.NFT) != 1 {
		return nil, nil, fmt.Errorf("nft listed %d tables", len(set.NFT))
	}
	return wire, set.NFT[0], nil
}

// same fails unless both readings of the loaded rules agree, element for element.
func same(t *testing.T, load string, families []string, flags ...string) {
	t.Helper()
	err := scratch(t).Do(t.Context(), func() error {
		if _, err := nft(load, append(flags, "-f", "-")...); err != nil {
			return err
		}
		for _, family := range families {
			wire, text, err := both(t, family)
			if err != nil {
				return err
			}
			assert.True(t, len(text.Chains) != 0 && len(text.Sets) != 0, "%s: nothing to compare", family)
			assert.Equal(t, hosttest.DiffTables(text, wire), "", "%s: nft -j has -, netlink +", family)
			for _, c := range text.Chains {
				assert.True(t, wire.Chain(c.Name) != nil, "%s: no chain %s by its name", family, c.Name)
			}
		}
		return nil
	})
	require.NoError(t, err)
}

// TestRecorded: recorded rules of kube-proxy are equal over netlink and in the output of nft -j.
func TestRecorded(t *testing.T) {
	same(t, recorded(t, testdata+"nft-list-ruleset.json"), []string{"ip", "ip6"}, "-j")
	same(t, recorded(t, testdata+"nft-1.36-form.json"), []string{"ip"}, "-j")
	same(t, recorded(t, testdata+"fields-nft.json"), []string{"ip"}, "-j")
}

// TestNone: a missing table is reported as fs.ErrNotExist.
func TestNone(t *testing.T) {
	err := scratch(t).Do(t.Context(), func() error {
		for range 2 { // the second time with another table in another family
			_, err := nftables.Read(t.Context(), "ip")
			assert.True(t, errors.Is(err, fs.ErrNotExist), "no table: %v", err)
			if _, err := nft("table ip6 kube-proxy {\n}\ntable ip kube-proxy-2 {\nchain x {\ndrop\n}\n}\n", "-f", "-"); err != nil {
				return err
			}
		}
		table, err := nftables.Read(t.Context(), "ip6")
		assert.True(t, err != nil || len(table.Chains)+len(table.Sets) == 0, "empty table: %v", table)
		return err
	})
	require.NoError(t, err)
}
