//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/nftables"
	"nodegate/internal/ruleset"
)

// TestServices: Services of every kind are found right in all backends. What a live kube-proxy wrote of them in nftables is the same over
// netlink as nft -j says, element for element.
func TestServices(t *testing.T) {
	c, binary := plane(t, Newest, ForRules()), nodegate(t)
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
		if err != nil {
			t.Fatal(err)
		}
		var ingress []object
		if name == "balanced" {
			ingress = []object{{"ip": "192.0.2.7"}}
		}
		if err := s.Patch(t.Context(), spec, ingress); err != nil {
			t.Fatal(err)
		}
		if name != "empty" {
			s.change()
			if err := s.Update(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, b := range Backends() {
		t.Run(string(b), func(t *testing.T) {
			n := addNode(t, c, b)
			untilAudit(t, n, binary, "with Services of every kind", "pass")
			if b == NFTables {
				sameTable(t, n)
			}
		})
	}
}

// sameTable reads a table of Services in both ways until kube-proxy has written them.
func sameTable(t *testing.T, n *ProxyNode) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := Until(ctx, func() error {
		wire, text, err := n.table(ctx, ruleset.IPv4)
		if err != nil {
			return err
		}
		if d := hosttest.DiffTables(text, wire); d != "" {
			return fmt.Errorf("nft -j has -, netlink +:\n%s", d)
		}
		for _, part := range []string{"/plain/", "affinity-", "/balanced/", "firewall-", "external-"} {
			if !strings.Contains(strings.Join(names(wire), "\n"), part) {
				return fmt.Errorf("no %s among what kube-proxy wrote:\n%s", part, strings.Join(names(wire), "\n"))
			}
		}
		t.Logf("%d chains and %d sets are the same", len(wire.Chains), len(wire.Sets))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
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

// table reads kube-proxy's table in both ways.
func (n *ProxyNode) table(ctx context.Context, family string) (wire, text *ruleset.NFTTable, err error) {
	read := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends in the node's namespace
		err := errors.New("the node has no network namespace of its own")
		for i, kind := range n.kinds {
			if kind == unix.CLONE_NEWNET {
				err = unix.Setns(int(n.namespaces[i].Fd()), kind)
			}
		}
		if err == nil {
			wire, err = nftables.Read(ctx, family)
		}
		read <- err
	}()
	if err := <-read; err != nil {
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
