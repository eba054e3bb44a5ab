package checks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// judgedCase is a recorded node and what one judgement says of it, as
// judgedText prints it.
type judgedCase struct {
	what, name string
	stage      checks.Stage
	policy     string // beside the check block
	node       *hosttest.Machine
	host       func(*host.Host) // changes what the node answers
	want       string
}

// judgedText is a result as lines: verdict, want and got, the first evidence,
// the remedy where it does not hold.
func judgedText(r checks.Result) string {
	var b strings.Builder
	fmt.Fprintln(&b, r.Verdict)
	switch {
	case r.Err != nil:
		fmt.Fprintln(&b, "error:", r.Err)
		return b.String()
	case r.Verdict == checks.Skip:
		fmt.Fprintln(&b, "skip:", r.State.Skip)
		return b.String()
	}
	fmt.Fprintf(&b, "want: %s\ngot: %s\n", r.State.Want, r.State.Got)
	if len(r.State.Evidence) > 0 {
		fmt.Fprintf(&b, "evidence: %s: %s\n", r.State.Evidence[0].Source, r.State.Evidence[0].Text)
	}
	if r.State.Cause != "" {
		fmt.Fprintln(&b, "because:", r.State.Cause)
	}
	if r.Verdict != checks.Pass {
		fmt.Fprintln(&b, "remedy:", r.State.Remedy)
	}
	return b.String()
}

func judgeOn(ctx context.Context, t *testing.T, h *host.Host, stage checks.Stage, name, extra string) checks.Result {
	t.Helper()
	list := checks.For(load(t, extra+"\ncheck \""+name+"\" {}\n"), stage)
	for _, r := range checks.Inspect(ctx, h, stage, list).Results {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("%s is not judged at stage %s", name, stage)
	return checks.Result{}
}

func runJudged(t *testing.T, cases []judgedCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name+"/"+c.what, func(t *testing.T) {
			stage := c.stage
			if stage == "" {
				stage = checks.Run
			}
			if c.node.Files == nil {
				c.node.Files = map[string]string{}
			}
			before := c.node.String()
			h := c.node.Host()
			if c.host != nil {
				c.host(h)
			}
			equal(t, c.what, c.want, judgedText(judgeOn(t.Context(), t, h, stage, c.name, c.policy)))
			if after := c.node.String(); after != before || c.node.Log != nil {
				t.Errorf("the judgement changed the node: %q", c.node.Log)
			}
		})
	}
}

// TestTrafficJudgementsTellEverything: explain and docs/checks.md print these texts.
func TestTrafficJudgementsTellEverything(t *testing.T) {
	for _, j := range checks.Problems() {
		for what, text := range map[string]string{"Detects": j.Detects, "Symptom": j.Symptom, "How": j.How, "Remedy": j.Remedy, "Ref": j.Ref} {
			if text == "" {
				t.Errorf("%s has no %s", j.Name, what)
			}
		}
		if len(j.Stages) == 0 || j.Severity == "" || j.Inspect == nil {
			t.Errorf("%s has no stage, severity or Inspect", j.Name)
		}
	}
}

// TestTrafficReplay: a snapshot answers what the node answered.
func TestTrafficReplay(t *testing.T) {
	m := proxyNode(changed(t, returnClear, "", masquerade, oldForm, dropInvalid, ""), "0")
	m.Kernel = "5.4.38"
	m.Files["/etc/os-release"] = "ID=flatcar\n"
	m.Files["/proc/net/stat/nf_conntrack"] = "entries insert_failed drop early_drop\n00000001 0000000a 00000000 00000000\n"
	m.Files["/proc/net/snmp"] = "Udp: InDatagrams InCsumErrors\nUdp: 9 3\n"
	m.Routes = []string{"eth0"}
	m.Links = map[string]*hosttest.Link{
		"eth0": {MTU: 1500, Driver: "ena", Stats: map[string]uint64{"pps_allowance_exceeded": 3}},
		"cni0": {Kind: "bridge", MTU: 1500}, "veth0": {Kind: "veth", MTU: 1500, Master: "cni0"},
		"flannel.1": {Kind: "vxlan", MTU: 1500, VXLAN: &host.VXLAN{Parent: "eth0"},
			Features: map[string]host.Feature{"tx-checksum-ip-generic": {Available: true, Requested: true, Active: true}}},
	}
	m.Sysctl("net/netfilter/nf_conntrack_count", "99")
	m.Sysctl("net/netfilter/nf_conntrack_max", "100")
	m.Sysctl("net/netfilter/nf_conntrack_buckets", "10")
	m.Sysctl("net/ipv6/conf/all/disable_ipv6", "0")
	var blocks strings.Builder
	for _, name := range []string{
		"bridge.netfilter", "bridge.netfilter-ipv6", "mtu.chain", "ena.allowance", "conntrack.be-liberal-changed", "conntrack.invalid",
		"conntrack.full", "conntrack.headroom", "conntrack.hashsize", "conntrack.kube-proxy-overwrites", "conntrack.losses", "vxlan.checksum",
		"udp.checksum-errors", "iptables.version", "iptables.backends", "iptables.bare-drop", "iptables.mark-regression",
		"kubeproxy.postrouting", "docker.forward-drop",
	} {
		fmt.Fprintf(&blocks, "check %q {}\n", name)
	}
	list := checks.For(load(t, blocks.String()), checks.Run)
	recording, snapshot := host.Record(m.Host())
	live := print(checks.Inspect(t.Context(), recording, checks.Run, list))
	equal(t, "live", `
fail bridge.netfilter: want every bridge on, got br_netfilter not loaded
skip bridge.netfilter-ipv6: this kernel has IPv6
warn mtu.chain: want tunnel <= NIC - 50, Pods <= tunnel, got flannel.1 1500 > 1450
warn ena.allowance: want 0, got eth0 pps_allowance_exceeded=3
warn conntrack.be-liberal-changed: want be_liberal as kube-proxy found it, got be_liberal=0 now, not 0 when kube-proxy started
warn conntrack.invalid: want be_liberal=1, or INVALID dropped, got be_liberal=0, no DROP of INVALID (because conntrack.be-liberal-changed)
fail conntrack.full: want at most 95 % of the table, got 99 % of the table
warn conntrack.headroom: want at most 80 % of the table, got 99 % of the table (because conntrack.full)
warn conntrack.hashsize: want at least a quarter of nf_conntrack_max, got 10 buckets for 100 entries
skip conntrack.kube-proxy-overwrites: the policy leaves nf_conntrack_max to kube-proxy
pass conntrack.losses
fail vxlan.checksum: want not all four conditions, got all four on flannel.1
pass udp.checksum-errors
skip iptables.version: iptables is not installed: kube-proxy brings its own
pass iptables.backends
pass iptables.bare-drop
pass iptables.mark-regression
warn kubeproxy.postrouting: want masqueraded once, from random ports, got double-snat
skip docker.forward-drop: Docker has no rules here
fail`, live)
	var file bytes.Buffer
	if err := json.NewEncoder(&file).Encode(snapshot); err != nil {
		t.Fatal(err)
	}
	read, err := host.ReadSnapshot(&file)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "replay", live, print(checks.Inspect(t.Context(), host.Replay(read), checks.Run, list)))
}
