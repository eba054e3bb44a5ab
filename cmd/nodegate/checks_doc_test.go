package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const checksHeader = `# Checks

Every check by its name. "nodegate explain NAME" says more: symptom, detection, trade-off. At stage boot, the gate's, a judgement of severity
warn is left out: it cannot hold kubelet. Written by "UPDATE=1 go test ./cmd/nodegate".

How each is shown to work:

- Modules and sysctls: broken and repaired in virtual machines (images/vm/scenarios; broken-by-hand shows seven checks there, each alone), and
  on the kernel in network namespaces
  (checks/kernel_test.go); links and offloads in network namespaces.
- image.module.*, image.units and sysctl.who-wins: broken by hand in real Debian 11, 12 and 13 trees (images/vm/trees_test.go); who-wins is
  compared with the real systemd-sysctl and procps.
- Every other judgement: a failing and a passing recorded node (checks/judge_*_test.go, traffic_*_test.go, linkjudge_test.go). On the real
  kernel as well: bridge.netfilter, mtu.chain, rp-filter.effective, nodeport.overlap, route-localnet.martian, vxlan.checksum,
  kubeproxy.postrouting, conntrack.invalid, conntrack.be-liberal-changed, iptables.backends, iptables.bare-drop, docker.forward-drop.
- kubeproxy.*: recordings of a real kube-proxy, broken one line at a time; loaded into real iptables (both backends) and nft.
- probe.bridge: real packets, in namespaces.
`

// TestChecksTable: docs/checks.md lists every check that there is, as
// `nodegate explain` does.
func TestChecksTable(t *testing.T) {
	const file = "../../docs/checks.md"
	all, err := explanations()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(checksHeader + "\n| name | stages | severity | detects | remedy | source |\n|---|---|---|---|---|---|\n")
	seen := map[string]bool{}
	for _, e := range all {
		if seen[e.Name] {
			t.Errorf("two checks are called %s", e.Name)
		}
		seen[e.Name] = true
		if e.Breaks == "" || e.Remedy == "" || e.How == "" || e.Stages == "" || e.Severity == "" {
			t.Errorf("%s is not explained: %+v", e.Name, e)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", e.Name, e.Stages, e.Severity, cell(e.Breaks), cell(e.Remedy), cell(e.Source))
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(b.String(), "\n"), strings.Split(string(have), "\n")); d != "" {
		t.Errorf("docs/checks.md is old; run UPDATE=1 go test ./cmd/nodegate\n%s", d)
	}
}

// cell keeps a text in its table cell.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s)
}
