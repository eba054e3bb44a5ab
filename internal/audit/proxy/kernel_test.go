package proxy

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// netns is a network namespace for one test. A sleeping process holds it, and it ends with that
// process.
type netns struct{ pid int }

// newNetns creates a namespace. It needs root and the given tools (Debian packages iptables,
// nftables).
func newNetns(t testing.TB, tools ...string) *netns {
	t.Helper()
	hosttest.NeedRoot(t)
	for _, tool := range append([]string{"unshare", "nsenter"}, tools...) {
		hosttest.NeedProgram(t, tool)
	}
	cmd := exec.Command("unshare", "-n", "--", "sh", "-c", "echo ready; exec sleep 120")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed: Wait returns an error
	})
	ready := make([]byte, len("ready"))
	if _, err := io.ReadFull(out, ready); err != nil {
		t.Fatalf("making a network namespace: %v", err)
	}
	return &netns{cmd.Process.Pid}
}

// run runs a command in the namespace and returns its output.
func (n *netns) run(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("nsenter", append([]string{"-t", fmt.Sprint(n.pid), "-n", "--"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, errs.String())
	}
	return out.String()
}

// loadable removes parts that a plain iptables cannot load: nfacct counters, which kube-proxy
// creates itself first.
func loadable(save string) string {
	save = strings.ReplaceAll(save, "-m nfacct --nfacct-name  ct_state_invalid_dropped_pkts ", "")
	return strings.ReplaceAll(save, "-m nfacct --nfacct-name  localhost_nps_accepted_pkts ", "")
}

// TestKernelIptables loads the recorded rules into a real kernel and saves them with the real tool:
// there must be no finding. After a change with the real tool, there must be exactly the expected
// finding.
func TestKernelIptables(t *testing.T) {
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			tool := "iptables-" + backend
			ns := newNetns(t, tool, tool+"-save", tool+"-restore")
			ns.run(t, loadable(readFile(t, "iptables-save.txt")), tool+"-restore")
			audit := func() Judgment {
				rs := mustParse(t, ns.run(t, "", tool+"-save", "-c"))
				assert.Equal(t, rs[0].Saves[0].Backend, backend, "backend")
				return Judge(rs, Options{NodePortAddresses: new(false)})
			}
			wantOne(t, audit(), "")
			for _, b := range []struct {
				args []string
				want string
			}{
				{[]string{"-t", "nat", "-D", svcEX, "3"}, "kubeproxy.chain.damaged"},
				{[]string{"-t", "nat", "-F", sepNP1}, "kubeproxy.chain.damaged"},
				{[]string{"-t", "nat", "-R", svcNP, "3", "-m", "statistic", "--mode", "random", "--probability", "0.4", "-j", sepNP2},
					"kubeproxy.chain.damaged"},
				{[]string{"-t", "nat", "-I", "KUBE-SERVICES", "-j", "RETURN"}, "kubeproxy.chain.damaged"},
				{[]string{"-t", "nat", "-D", "KUBE-SERVICES", "9"}, "kubeproxy.chain.damaged"},
				{[]string{"-t", "nat", "-X", "KUBE-PROXY-CANARY"}, "kubeproxy.canary.missing"},
				{[]string{"-t", "nat", "-F"}, "kubeproxy.table.flushed"},
				{[]string{"-A", "KUBE-FIREWALL", "-j", "DROP"}, "kubeproxy.firewall.bare-drop"},
				{[]string{"-D", "FORWARD", "2"}, "kubeproxy.jump.missing"},
			} {
				ns.run(t, "", append([]string{tool, "-w"}, b.args...)...)
				t.Run(strings.Join(b.args, " "), func(t *testing.T) { wantOne(t, audit(), b.want) })
				ns.run(t, loadable(readFile(t, "iptables-save.txt")), tool+"-restore")
			}
		})
	}
}

func TestKernelNFT(t *testing.T) {
	ns := newNetns(t, "nft")
	// The text form of nft loses matches in the tables of iptables, so they are left out.
	_, own, _ := strings.Cut(readFile(t, "nft-list-ruleset.txt"), "table ip kube-proxy {")
	own = "table ip kube-proxy {" + own
	ns.run(t, own, "nft", "-f", "-")
	audit := func() Judgment { return Judge(mustParse(t, ns.run(t, "", "nft", "-j", "list", "ruleset")), Options{}) }
	wantOne(t, audit(), "")
	for _, b := range []struct{ cmd, want string }{
		{"flush chain ip kube-proxy endpoint-672AFPA7-prod/np/tcp/__100.96.1.1/80", "kubeproxy.chain.damaged"},
		{"add rule ip kube-proxy services drop", "kubeproxy.chain.damaged"},
		{"delete element ip kube-proxy cluster-ips { 10.104.34.55 }", "kubeproxy.chain.damaged"},
		{"flush chain ip kube-proxy masquerading", "kubeproxy.chain.damaged"},
		{"flush chain ip kube-proxy nat-prerouting", "kubeproxy.jump.missing"},
	} {
		t.Run(b.cmd, func(t *testing.T) {
			ns.run(t, b.cmd+"\n", "nft", "-f", "-")
			wantOne(t, audit(), b.want)
		})
		ns.run(t, "flush ruleset\n", "nft", "-f", "-")
		ns.run(t, own, "nft", "-f", "-")
	}
}
