package policy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/policy"
)

func load(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, diags := policy.Load([]policy.File{{Name: "test.hcl", Text: []byte(text)}}, known())
	require.True(t, !diags.HasErrors(), "%v\n%s", diags, text)
	return p
}

// known returns the options that the commands use.
func known() policy.Options { return policy.Options{Checks: problemNames()} }

// problemNames returns the names that a check block can have. It reads them from a file of the command, because this package
// imports no check.
func problemNames() []string {
	text, err := os.ReadFile("../cmd/nodegate/testdata/contract.golden")
	if err != nil {
		panic(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		if name, is := strings.CutPrefix(line, "problem "); is {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

func TestParseKey(t *testing.T) {
	for in, want := range map[string]string{
		"net.ipv4.ip_forward":                "net/ipv4/ip_forward",
		"net/ipv4/ip_forward":                "net/ipv4/ip_forward",
		"net.ipv4.conf.eth0/100.forwarding":  "net/ipv4/conf/eth0.100/forwarding",
		"net/ipv4/conf/eth0.100/forwarding":  "net/ipv4/conf/eth0.100/forwarding",
		"net.ipv4.conf.*.rp_filter":          "net/ipv4/conf/*/rp_filter",
		"net.bridge.bridge-nf-call-iptables": "net/bridge/bridge-nf-call-iptables",
	} {
		k, err := policy.ParseKey(in)
		assert.True(t, err == nil && string(k) == want, "ParseKey(%q) = %q, %v; want %q", in, k, err, want)
		if again, err := policy.ParseKey(k.String()); err != nil || again != k {
			t.Errorf("ParseKey(%q) = %q, %v; want %q", k.String(), again, err, k)
		}
	}
	for _, in := range []string{
		"", ".", "/", "..", "a", "a..b", "/a/b", "a/../b", "a/./b", "../etc/passwd", "a.b ", "a.\x00", "a.[", strings.Repeat("a.", 200),
	} {
		if k, err := policy.ParseKey(in); err == nil {
			t.Errorf("ParseKey(%q) = %q; want an error", in, k)
		}
	}
}

func TestValues(t *testing.T) {
	p := load(t, `
		sysctl "a.value" { value = "4096\t131072   6291456" }
		sysctl "a.huge"  { value = 18446744073709551615 }
		sysctl "a.hex"   { value = "0x10" }
		sysctl "a.range" {
		  min = 10
		  max = 20
		}
		sysctl "a.most"  { max = 20 }
		sysctl "a.list"  { one_of = [2, "1"] }
		sysctl "a.least" { min = 10 }
		sysctl "net.ipv4.tcp_allowed_congestion_control" { value = "reno bbr cubic" }`)
	type answer struct {
		Allows bool
		Target string
	}
	for _, c := range []struct {
		sysctl    int
		got       string
		want      answer
		wantWords string
	}{
		{0, "4096 131072 6291456", answer{true, "4096 131072 6291456"}, "4096 131072 6291456"},
		{0, "4096", answer{false, "4096 131072 6291456"}, "4096 131072 6291456"},
		{1, "18446744073709551615", answer{true, "18446744073709551615"}, "18446744073709551615"},
		{2, "16", answer{true, "16"}, "0x10"},
		{3, "9", answer{false, "10"}, "10 to 20"},
		{3, "18446744073692774399", answer{false, "20"}, "10 to 20"}, // kernel.shmmax by default
		{6, "18446744073692774399", answer{true, "18446744073692774399"}, "at least 10"},
		{3, "21", answer{false, "20"}, "10 to 20"},
		{3, "words", answer{false, "10"}, "10 to 20"},
		{4, "21", answer{false, "20"}, "at most 20"},
		{4, "words", answer{false, "20"}, "at most 20"},
		{5, "1", answer{true, "1"}, "one of 2, 1"},
		{5, "0", answer{false, "2"}, "one of 2, 1"},
		{7, "reno cubic bbr", answer{true, "reno cubic bbr"}, "bbr cubic reno"}, // in the order of their modules
		{7, "reno cubic", answer{false, "bbr cubic reno"}, "bbr cubic reno"},
	} {
		s := p.Sysctls[c.sysctl]
		if d := cmp.Diff(c.want, answer{s.Allows(c.got), s.Target(c.got)}); d != "" || s.Want() != c.wantWords {
			t.Errorf("%s reading %q, want %q: %s", s.Key, c.got, s.Want(), d)
		}
	}
}

// TestMergedRequirements: requirements of one name are merged if one value can satisfy both.
func TestMergedRequirements(t *testing.T) {
	p := load(t, `
		module "overlay" { severity = "warn" }
		module "overlay" {}
		sysctl "a.one" { min = 5 }
		sysctl "a/one" { value = 7 }
		sysctl "a.two" { min = 5 }
		sysctl "a.two" {
		  min      = 7
		  max      = 9
		  severity = "warn"
		}
		sysctl "a.three" { one_of = [1, 2, 3] }
		sysctl "a.three" {
		  min   = 2
		  drift = "report"
		}
		sysctl "net.netfilter.nf_conntrack_max" {
		  min      = 1
		  severity = "warn"
		}
		sysctl "net.bridge.bridge-nf-call-iptables" { value = 1 }`)
	var got []string
	for _, m := range p.Modules {
		got = append(got, "module "+m.Name+" "+string(m.Severity))
	}
	for _, s := range p.Sysctls {
		got = append(got, s.Key.String()+" "+s.Want()+" "+string(s.Severity)+" "+string(s.Drift))
	}
	want := []string{
		"module overlay block", "module nf_conntrack warn", "module br_netfilter block",
		"a.one 7 block correct", "a.two 7 to 9 block correct", "a.three one of 2, 3 block report",
		"net.netfilter.nf_conntrack_max at least 1 warn correct", "net.bridge.bridge-nf-call-iptables 1 block correct",
	}
	assert.Diff(t, got, want)
}

// TestOwnGate: the author's gate replaces the gate of a built-in policy.
func TestOwnGate(t *testing.T) {
	own := `gate { on_timeout = "release" }`
	use := `use "kubernetes" {}`
	for _, text := range []string{own + "\n" + use, use + "\n" + own} {
		if g := load(t, text).Gate; g.OnTimeout != policy.Release || g.Unit != "kubelet.service" {
			t.Errorf("%s: %+v", text, g)
		}
	}
	files := []policy.File{{Name: "a.hcl", Text: []byte(use)}, {Name: "b.hcl", Text: []byte(own)}}
	if p, diags := policy.Load(files, known()); diags.HasErrors() || p.Gate.OnTimeout != policy.Release {
		t.Errorf("in two files: %+v, %v", p.Gate, diags)
	}
}

func TestBuiltinsLoad(t *testing.T) {
	for _, name := range policy.Builtins() {
		f, err := policy.Builtin(name)
		require.NoError(t, err)
		p, diags := policy.Load([]policy.File{f}, known())
		assert.True(t, len(diags) == 0, "%s: %v", name, diags)
		for _, s := range p.Sysctls {
			assert.True(t, s.Reason != "" && s.Ref != "", "%s: %s lacks a reason or a ref", name, s.Key)
		}
	}
	for _, name := range []string{"", "..", "../builtin/kubernetes", "../kubernetes", "/kubernetes", "nosuch", "a/b"} {
		if _, err := policy.Builtin(name); err == nil {
			t.Errorf("Builtin(%q) returns no error", name)
		}
	}
}

// TestDocs loads every HCL example of the documentation.
func TestDocs(t *testing.T) {
	files, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	examples := 0
	for _, file := range append(files, "../README.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for i, block := range strings.Split(string(text), "```hcl\n")[1:] {
			example, _, ok := strings.Cut(block, "```")
			assert.True(t, ok, "%s: example %d does not end", file, i+1)
			examples++
			if _, diags := policy.Load([]policy.File{{Name: file, Text: []byte(example)}}, known()); len(diags) > 0 {
				t.Errorf("%s: example %d: %v\n%s", file, i+1, diags, example)
			}
		}
	}
	if examples == 0 {
		t.Error("no example found: the test reads the wrong directory")
	}
}

// FuzzLoad: SECURITY.md: panic.
func FuzzLoad(f *testing.F) {
	for _, name := range policy.Builtins() {
		b, err := policy.Builtin(name)
		require.NoError(f, err)
		f.Add(b.Text)
	}
	f.Add([]byte(`link "a" { match { name = "*" } offload = { tx = false } sysctl = { "net.ipv4.conf.*.rp_filter" = "0" } }`))
	f.Add([]byte("sysctl \"a.b\" {\n  one_of = [1, \"x\", null, true]\n  min = 1e400\n}\ngate {\n budget = \"9999999h\"\n}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, diags := policy.Load([]policy.File{{Name: "fuzz.hcl", Text: text}}, known())
		if diags.HasErrors() {
			return
		}
		for _, s := range p.Sysctls {
			// Every valid requirement can be spelt, compared and printed.
			if k, err := policy.ParseKey(s.Key.String()); err != nil || k != s.Key {
				t.Errorf("%q is spelt %q, which reads as %q, %v", s.Key, s.Key.String(), k, err)
			}
			if got := s.Target("no number"); strings.ContainsAny(s.Want()+got, "\n\x00") {
				t.Errorf("%s wants %q, writes %q", s.Key, s.Want(), got)
			}
		}
	})
}

// TestDefaultDrift: the gate determines the drift of requirements that do not set it.
func TestDefaultDrift(t *testing.T) {
	const text = `
		sysctl "a.one" { value = 1 }
		sysctl "a.two" {
		  value = 1
		  drift = "ignore"
		}
		probe "bridge" {}
		check "swap" {}`
	drift := func(text string) []policy.Drift {
		p := load(t, text)
		return []policy.Drift{p.Sysctls[0].Drift, p.Sysctls[1].Drift, p.Probes[0].Drift, p.Problems[0].Drift}
	}
	assert.Diff(t, drift(text), []policy.Drift{policy.Correct, policy.Ignore, policy.Ignore, policy.Report})
	assert.Diff(t, drift(text+"\ngate { repair = false }"), []policy.Drift{policy.Report, policy.Ignore, policy.Ignore, policy.Report})
}

// TestTooLarge: a policy that is too large for its author to be a person is refused before it is parsed, in one file or in many.
func TestTooLarge(t *testing.T) {
	line := "module \"overlay\" {}\n"
	text := []byte(strings.Repeat(line, policy.MaxFileSize/2/len(line)+1))
	for name, c := range map[string]struct {
		files int
		text  []byte
		want  string
	}{
		"one that fits": {1, text, ""},
		"two together":  {2, text, "Policy too large"},
		"one":           {1, append(text, text...), "File too large"},
	} {
		var files []policy.File
		for i := range c.files {
			files = append(files, policy.File{Name: fmt.Sprint(i, ".hcl"), Text: c.text})
		}
		_, diags := policy.Load(files, known())
		if got := diags.Error(); c.want == "" && diags.HasErrors() || !strings.Contains(got, c.want) {
			t.Errorf("%s: %.200s, want %q", name, got, c.want)
		}
	}
}
