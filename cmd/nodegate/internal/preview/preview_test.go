package preview_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/cmd/nodegate/internal/preview"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/policy"
)

const newPolicy = `
module "ip_vs" { when = version_at_least(kernel.version, "5.9") }
sysctl "net.ipv4.vs.conntrack" {
  value = 1
  when  = version_at_least(kernel.version, "5.9")
}
sysctl "kernel.panic" { min = 10 }
sysctl "vm.swappiness" {
  value    = 1
  severity = "warn"
}
link "eth" {
  match { name = "eth0" }
  mtu = 1500
}
check "swap" { severity = "block" }
`

func node(name, kernel, panicValue, modules string) *hosttest.Machine {
	m := checkstest.Node(map[string]string{"/lib/modules/" + kernel + "/modules.dep": modules, "/proc/swaps": "Filename\n",
		"/proc/sys/kernel/hostname": name + "\n", "/lib/modules/" + kernel + "/modules.builtin": ""},
		map[string]string{"kernel/panic": panicValue, "vm/swappiness": "60"})
	m.Kernel = kernel
	m.Links = map[string]*hosttest.Link{"eth0": {MTU: 1500}}
	return m
}

// snapshot returns the snapshot that `nodegate snapshot --policy` would record.
func snapshot(t *testing.T, m *hosttest.Machine, text string) string {
	t.Helper()
	recording, s := host.Record(m.Host())
	o := policy.Options{Checks: catalog.Known().Checks, Fact: func(name string) (any, bool) { return recording.Fact(t.Context(), name) }}
	p, diags := policy.Load([]policy.File{{Name: "p.hcl", Text: []byte(text)}}, o)
	require.True(t, !diags.HasErrors(), "%v", diags)
	found := checks.Inspect(t.Context(), recording, checks.Boot, catalog.For(p, checks.Boot))
	report.New(recording, p, found)
	return encode(t, s)
}

func encode(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	require.NoError(t, err)
	return string(text)
}

func previewed(t *testing.T, texts ...string) ([]preview.Forecast, []error) {
	t.Helper()
	return previewedBy(t, newPolicy, texts...)
}

func previewedBy(t *testing.T, text string, texts ...string) ([]preview.Forecast, []error) {
	t.Helper()
	files := []policy.File{{Name: "new.hcl", Text: []byte(text)}}
	p := preview.Policy{Source: policy.Read(files, policy.Options{Checks: catalog.Known().Checks})}
	return p.Nodes(t.Context(), len(texts), func(i int) (preview.Document, error) {
		if texts[i] == "" {
			return preview.Document{}, errors.New("no such file")
		}
		return preview.Document{Name: string(rune('a' + i)), Text: []byte(texts[i])}, nil
	})
}

func TestPreview(t *testing.T) {
	const has = "kernel/net/ip_vs.ko:\n"
	swapping := node("swapping", "5.4.0", "10", "")
	swapping.Files["/proc/swaps"] = "Filename\n/dev/sda2 partition 1 0 -2\n"
	swapping.Files["/var/lib/kubelet/config.yaml"] = "{}\n"
	fine := node("fine", "5.4.0", "30", "")
	fine.Sysctl("vm/swappiness", "1")
	nodes, errs := previewed(t,
		snapshot(t, fine, newPolicy),
		snapshot(t, node("changed", "6.1.0", "0", has), newPolicy),
		snapshot(t, node("lacks-module", "6.1.0", "30", ""), newPolicy),
		snapshot(t, swapping, newPolicy),
		snapshot(t, node("asked-less", "5.4.0", "30", ""), "check \"swap\" { severity = \"block\" }\n"),
		"", "{}",
	)
	d := cmp.Diff(2, len(errs))
	assert.True(t, d == "", "%v", errs)
	var b strings.Builder
	require.NoError(t, preview.Text(&b, nodes, false, report.Plain))
	checkstest.Equal(t, "text", `
held          1  module.ip_vs: not installed, wants loaded
                 lacks-module
held          1  swap: swap on /dev/sda2, wants no swap, or failSwapOn false
                 swapping
unknown       1  sysctl.kernel.panic: reading sysctl: /proc/sys/kernel/panic: not in this snapshot: its policy did not read it, and it is not --whole
                 asked-less
unknown       1  link.eth: links: not in this snapshot: its policy did not read it, and it is not --whole
                 asked-less
changed       3  sysctl.vm.swappiness: 60 -> 1
                 changed lacks-module swapping
changed       1  module.ip_vs: not loaded -> loaded
                 changed
changed       1  sysctl.net.ipv4.vs.conntrack: no such parameter -> 1
                 changed
changed       1  sysctl.kernel.panic: 0 -> at least 10
                 changed
nodegate: 5 nodes: 1 pass, 1 changed, 1 unknown, 2 held`, b.String())
	assert.True(t, preview.Worst(nodes) == preview.Held, "the worst is not held")
}

// TestFollows: a failure that ends when apply changes another setting does not hold the node. A warning that apply cannot fix does not
// count as a change.
func TestFollows(t *testing.T) {
	const text = `
check "inotify.limits" { severity = "block" }
sysctl "fs.inotify.max_user_watches" {
  value    = 524288
  severity = "warn"
}
sysctl "fs.inotify.max_user_instances" { value = 8192 }
sysctl "kernel.no_such" {
  value    = 1
  severity = "warn"
}`
	low := checkstest.Node(map[string]string{"/proc/sys/kernel/hostname": "low\n"},
		map[string]string{"fs/inotify/max_user_watches": "8192", "fs/inotify/max_user_instances": "128"})
	nodes, errs := previewedBy(t, text, snapshot(t, low, text))
	require.True(t, len(errs) == 0 && len(nodes) == 1 && nodes[0].Outcome == preview.Changed && len(nodes[0].Reasons) == 3, "%+v, %v", nodes, errs)
}

// TestForged: the name of another machine cannot start a line or set colours.
func TestForged(t *testing.T) {
	nodes, errs := previewed(t, snapshot(t, node("x\nnodegate: 1 node: 1 pass\x1b[8m", "6.1.0", "0", ""), newPolicy))
	var b strings.Builder
	err := preview.Text(&b, nodes, true, report.Plain)
	require.True(t, err == nil && errs == nil, "%v %v", err, errs)
	text := b.String()
	assert.True(t, strings.Count(text, "\nnodegate: 1 node") == 1 && !strings.Contains(text, "\x1b"), "%q", text)
}
