package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/policy"
	"nodegate/policy/lint"
)

// TestLinksMeet lints two links that differ in their MTU: a contradiction only if an interface can match both.
func TestLinksMeet(t *testing.T) {
	for _, c := range []struct {
		one, other string
		meet       bool
	}{
		{`driver = "ena"`, `kind = "wireguard"`, false},
		{`driver = "mlx5_core"`, `kind = "vlan"`, false},
		{`driver = "virtio_net"`, `kind = "bridge"`, false},
		{`kind = "bond"`, `driver = "ixgbe"`, false},
		{`driver = "bonding"`, `kind = "bond"`, true},
		{`driver = "bridge"`, `kind = "bridge"`, true},
		{`driver = "mlx5_core"`, `kind = "ipoib"`, true},
		{`driver = "ena"`, `name = "eth*"`, true},
		{`name = "ens1f*"`, `name = "ens[34]*"`, false},
		{`name = "ens[^1]*"`, `name = "ens1f*"`, false},
	} {
		text := fmt.Sprintf("link \"a\" {\n match {\n %s\n }\n mtu = 1400\n reason = \"r\"\n}\nlink \"b\" {\n match {\n %s\n }\n mtu = 1500\n "+
			"reason = \"r\"\n}", c.one, c.other)
		diags := lint.Lint([]policy.File{{Name: "test.hcl", Text: []byte(text)}}, known())
		if meet := strings.Contains(diags.Error(), "may match both"); meet != c.meet {
			t.Errorf("%s and %s meet: %t; %v", c.one, c.other, meet, diags)
		}
	}
}
