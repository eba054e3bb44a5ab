//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/nftables"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// TestServices: audit passes for Services of every kind in all backends. For nftables and iptables-nft, kube-proxy's rules read over
// netlink equal those from nft -j and iptables-nft-save element by element.
func TestServices(t *testing.T) {
	c, binary := startPlane(t, Newest, ForRules()), buildNodegate(t)
	kinds := map[string]object{
		"plain":  {},
		"sticky": {"sessionAffinity": "ClientIP", "sessionAffinityConfig": object{"clientIP": object{"timeoutSeconds": 77}}},
		"ports":  {"type": "NodePort"},
		"balanced": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "externalIPs": []string{"203.0.113.9"},
			"loadBalancerSourceRanges": []string{"198.51.100.0/24", "203.0.112.0/21"}},
		"internal": {"internalTrafficPolicy": "Local"},
		"empty":    {"type": "NodePort", "externalIPs": []string{"203.0.113.10"}},
	}
	for name, spec := range kinds {
		s, err := c.AddService(t.Context(), name, map[bool]string{true: "UDP", false: "TCP"}[name == "ports"])
		require.NoError(t, err)
		var ingress []object
		if name == "balanced" {
			ingress = []object{{"ip": "192.0.2.7"}}
		}
		require.NoError(t, s.Patch(t.Context(), spec, ingress))
		if name != "empty" {
			s.replaceEndpoints()
			require.NoError(t, s.Update(t.Context()))
		}
	}
	older, err := Build(t.Context(), CacheDir(repositoryRoot(t)), Older, []string{"kube-proxy"})
	require.NoError(t, err)
	for _, of := range []struct {
		bin     string
		backend Backend
	}{{"", IptablesNFT}, {"", IptablesLegacy}, {"", NFTables}, {older, IptablesNFT}, {older, NFTables}} {
		b := of.backend
		t.Run(string(b)+map[bool]string{true: "-older"}[of.bin != ""], func(t *testing.T) {
			c.ProxyBin = of.bin
			n := addNode(t, c, b)
			untilAudit(t, n, binary, "with Services of every kind", "pass")
			switch b {
			case NFTables:
				sameTable(t, n)
			case IptablesNFT:
				sameSave(t, n)
			}
		})
	}
}

// sameTable reads a table of Services in both ways until they agree on the complete rules.
func sameTable(t *testing.T, n *ProxyNode) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, Until(ctx, func() error {
		wire, text, err := n.readTables(ctx, ruleset.IPv4)
		if err != nil {
			return err
		}
		if d := hosttest.DiffTables(text, wire); d != "" {
			return fmt.Errorf("nft -j has -, netlink +:\n%s", d)
		}
		for _, part := range []string{"/plain/", "affinity-", "/balanced/", "firewall-", "external-"} {
			if !strings.Contains(strings.Join(names(wire), "\n"), part) {
				return fmt.Errorf("%s is missing in kube-proxy's rules:\n%s", part, strings.Join(names(wire), "\n"))
			}
		}
		t.Logf("%d chains and %d sets are equal", len(wire.Chains), len(wire.Sets))
		return nil
	}))
}

// sameSave reads the tables of iptables-nft in both ways until kube-proxy does not change them in between.
func sameSave(t *testing.T, n *ProxyNode) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, Until(ctx, func() error {
		var wire *ruleset.Set
		err := n.inNetwork(func() error {
			return nftables.Save(ctx, ruleset.IPv4, func(r io.Reader) (err error) {
				wire, err = ruleset.Parse("", r)
				return err
			})
		})
		if err != nil {
			return err
		}
		listing, err := n.Output(ctx, "iptables-nft-save")
		if err != nil {
			return err
		}
		text, err := ruleset.Parse("", strings.NewReader(listing))
		if err != nil {
			return err
		}
		if d := hosttest.DiffSets(text, wire); d != "" {
			return fmt.Errorf("iptables-nft-save has -, netlink +:\n%s", d)
		}
		for _, part := range []string{"-m recent", "-m statistic", "-j DNAT", "KUBE-FW-", "-j REJECT", "-m addrtype"} {
			if !strings.Contains(listing, part) {
				return fmt.Errorf("%s is missing in kube-proxy's rules:\n%s", part, listing)
			}
		}
		t.Logf("%d lines are equal", wire.Lines)
		return nil
	}))
}

func names(t *ruleset.NFTTable) []string {
	var all []string
	for _, c := range t.Chains {
		all = append(all, c.Name)
	}
	for name := range t.Sets {
		all = append(all, name)
	}
	return all
}

// inNetwork calls do in the node's network namespace.
func (n *ProxyNode) inNetwork(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends in the node's namespace
		err := errors.New("the node's network namespace is missing")
		for i, kind := range n.kinds {
			if kind == unix.CLONE_NEWNET {
				err = unix.Setns(int(n.namespaces[i].Fd()), kind)
			}
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// readTables reads kube-proxy's table in both ways.
func (n *ProxyNode) readTables(ctx context.Context, family string) (wire, text *ruleset.NFTTable, err error) {
	if err := n.inNetwork(func() (err error) {
		wire, err = nftables.Read(ctx, family)
		return err
	}); err != nil {
		return nil, nil, err
	}
	listing, err := n.Output(ctx, "nft", "-j", "list", "table", family, ruleset.KubeProxyTable)
	if err != nil {
		return nil, nil, err
	}
	set, err := ruleset.Parse("nft", strings.NewReader(listing))
	if err != nil {
		return nil, nil, err
	}
	if len(set.NFT) != 1 {
		return nil, nil, fmt.Errorf("nft listed %d tables", len(set.NFT))
	}
	return wire, set.NFT[0], nil
}
