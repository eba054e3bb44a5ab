package lint_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/policy"
	"nodegate/policy/kernels"
	"nodegate/policy/lint"
)

// known returns the options that the commands use, with the checks that a file of the command lists: this package imports none.
func known() policy.Options {
	text, err := os.ReadFile("../../cmd/nodegate/testdata/contract.golden")
	if err != nil {
		panic(err)
	}
	var o policy.Options
	for _, name := range regexp.MustCompile(`(?m)^problem (\S+)`).FindAllStringSubmatch(string(text), -1) {
		o.Checks = append(o.Checks, name[1])
	}
	return o
}

func load(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, diags := policy.Load([]policy.File{{Name: "test.hcl", Text: []byte(text)}}, known())
	require.True(t, !diags.HasErrors(), "%v\n%s", diags, text)
	return p
}

// TestLintedPoliciesEvaluate: a policy that passes Lint loads on every node, with any facts. The
// policies consist of random expressions, valid and invalid ones.
func TestLintedPoliciesEvaluate(t *testing.T) {
	seed := uint64(1)
	if os.Getenv("SEED") != "" {
		seed = rand.Uint64()
	}
	g := generator{rand.New(rand.NewPCG(seed, 0))}
	t.Logf("seed %d", seed)
	right, wrong := 0, 0
	for range 200 {
		text := g.policy()
		files := []policy.File{{Name: "random.hcl", Text: []byte(text)}}
		if _, diags := policy.Load(files, known()); diags.HasErrors() || lint.Lint(files, known()).HasErrors() {
			wrong++
			continue
		}
		right++
		for range 100 {
			facts := g.facts()
			o := known()
			o.Fact = func(name string) (any, bool) { v, ok := facts[name]; return v, ok }
			if _, diags := policy.Load(files, o); diags.HasErrors() {
				t.Fatalf("seed %d: Lint accepts it, but with the facts %v: %v\n%s", seed, facts, diags, text)
			}
		}
	}
	assert.True(t, right >= 40 && wrong >= 40, "Lint accepts %d policies and rejects %d: too few to prove anything", right, wrong)
}

// TestBuiltinsEvaluate: the built-in policies pass Lint.
func TestBuiltinsEvaluate(t *testing.T) {
	for _, name := range policy.Builtins() {
		f, err := policy.Builtin(name)
		require.NoError(t, err)
		if diags := lint.Lint([]policy.File{f}, known()); len(diags) > 0 {
			t.Errorf("%s: %v", name, diags)
		}
	}
}

// TestOnNodes: Lint finds a mistake that depends on the facts of two blocks, and one in a block whose condition is unknown at first. It
// names the node. A formula for the memory of usual nodes is right.
func TestOnNodes(t *testing.T) {
	for _, c := range [][2]string{
		{`sysctl "kernel.panic" {
		  value = null
		  when  = os.id == "debian"
		}`, "Missing value"},
		{`link "a" {
		  match { name = "eth0" }
		  mtu  = 1500
		  when = os.id == "debian"
		}
		link "b" {
		  match { name = "eth*" }
		  mtu  = 9001
		  when = node.cpus > 3
		}`, `This happens on a node with 4 CPUs and os.id "debian".`},
		{`sysctl "kernel.panic" { value = [for x in ["a", "b"]: 5 if x == os.id][0] }`, `This happens on a node with os.id "debian".`},
		{`sysctl "kernel.pid_max" { value = 65536 * node.cpus }`, "kernel.pid_max = 6291456 on a node with 96 CPUs: refused by Linux"},
		{`sysctl "vm.max_map_count" { value = floor(node.memory / 8192) }`, ""},
		{`sysctl "vm.max_map_count" { value = floor(node.memory / 16) }`, ""},
		{`sysctl "vm.max_map_count" { value = floor(node.memory / 1024) }`, ""},
		{`sysctl "kernel.threads-max" { value = floor(node.memory / 16384) }`, ""},
		{`sysctl "fs.file-max" { value = floor(node.memory / 10240) }`, ""},
		{`sysctl "net.core.rmem_max" { value = floor(node.memory / 1024) }`, ""},
		{`sysctl "vm.max_map_count" { value = floor(node.memory / 1048576) }`, "vm.max_map_count must be 992 here"},
	} {
		diags := lint.Lint([]policy.File{{Name: "p.hcl", Text: []byte(c[0])}}, known())
		got := ""
		for _, d := range diags {
			got += d.Error() + "\n"
		}
		assert.True(t, (got != "") == (c[1] != "") && strings.Contains(got, c[1]), "%s\n%s", c[0], got)
	}
}

// BenchmarkLintConditions: 50 and 500 blocks, each with a condition of its own over five facts.
func BenchmarkLintConditions(b *testing.B) {
	for _, blocks := range []int{50, 500} {
		for _, keys := range []int{1, 50} {
			var text strings.Builder
			for i := range blocks {
				fmt.Fprintf(&text, "sysctl \"vm.bench%d\" {\n  min  = %d\n  when = version_at_least(kernel.version, \"5.%d\") && node.memory >= %d * 1024 "+
					"* 1024 && node.cpus >= %d && %sos.id == \"%s\" && cloud.provider != \"%s\"\n}\n", i%keys, i, i%60, 1024+i, 1+i%300,
					[]string{"", "node.cpus != 77 && "}[i%2], []string{"debian", "ubuntu", "amzn"}[i%3], []string{"aws", "gcp"}[i%2])
			}
			b.Run(fmt.Sprintf("%d blocks, %d keys", blocks, keys), func(b *testing.B) {
				before := processorTime(b)
				defer func() { b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/1e9, "cpu-s/op") }()
				for b.Loop() {
					if diags := lint.Lint([]policy.File{{Name: "p.hcl", Text: []byte(text.String())}}, known()); diags.HasErrors() {
						b.Fatal(diags)
					}
				}
			})
		}
	}
}

// processorTime returns the nanoseconds of processor that the test has used. Wall time depends on what else runs.
func processorTime(b *testing.B) int64 {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return used.Utime.Nano() + used.Stime.Nano()
}

// TestRecordedOffloads: a policy can name every offload of the recorded kernels.
func TestRecordedOffloads(t *testing.T) {
	recorded, err := kernels.Read()
	require.NoError(t, err)
	for _, name := range recorded.Offloads {
		load(t, "link \"a\" {\n match { name = \"a\" }\n offload = { "+name+" = true }\n}\n")
	}
}

type generator struct{ *rand.Rand }

func (g generator) one(of ...string) string { return of[g.IntN(len(of))] }

// facts returns a node's facts, such as a real one has, some of them unknown.
func (g generator) facts() map[string]any {
	version := func(major int) string { return fmt.Sprintf("%d.%d.%d", major, 2+g.IntN(40), g.IntN(60)) }
	facts := map[string]any{
		"node.cpus": 1 + g.Int64N(1024), "node.memory": (1<<20 + g.Int64N(1<<34)) << 10, "systemd.version": 219 + g.Int64N(40),
		"kernel.version": version(3 + g.IntN(5)), "os.id": g.one("debian", "ubuntu", "flatcar", "opensuse-leap"), "os.version": g.one("", "12", "24.04"),
		"kubelet.version": version(1) + g.one("", "+k3s1"), "cloud.provider": g.one("", "aws", "azure"), "cni.name": g.one("cbr0", "my-own"),
		"kube_proxy.mode": g.one("iptables", "nftables", "ipvs"),
	}
	facts["kernel.release"] = facts["kernel.version"].(string) + g.one("", "-rc1", "-28-cloud-amd64", ".el8")
	for _, name := range policy.FactNames() {
		if g.IntN(5) == 0 {
			delete(facts, name)
		}
	}
	return facts
}

func (g generator) policy() string {
	var b strings.Builder
	for i := range 1 + g.IntN(3) {
		fmt.Fprintf(&b, "sysctl \"a.b%d\" {\n  %s = %s\n", g.IntN(3)*i, g.one("value", "min", "max"), g.number(2))
		if g.IntN(2) == 0 {
			fmt.Fprintf(&b, "  when = %s\n", g.condition(2))
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func (g generator) number(depth int) string {
	literal := fmt.Sprint(g.IntN(5000))
	if depth == 0 {
		return g.one(literal, "node.cpus", "node.memory", "systemd.version", literal, literal)
	}
	a, b := g.number(depth-1), g.number(depth-1)
	return g.one(literal, a, "("+a+" + "+b+")", a+" * "+literal, "max("+a+", "+b+")", "min("+a+", 1024)", "ceil("+a+" / 3)",
		"floor("+a+" / max(1, "+b+"))", a+" - "+b, a+" % "+b, a+" / "+b, "floor(node.memory / node.cpus)",
		g.condition(depth-1)+" ? "+a+" : "+b, g.one("null", a, "os.id"), "floor("+a+" * 1.5)", "coalesce(null, "+a+")")
}

func (g generator) condition(depth int) string {
	text := g.one("os.id", "os.version", "kernel.version", "kernel.release", "kube_proxy.mode", "cni.name", "kubelet.version")
	literal := fmt.Sprintf("%q", g.one("debian", "12", "5.4", "iptables", "6.1.0", "aws"))
	if depth == 0 {
		return text + " == " + literal
	}
	a, b, n := g.condition(depth-1), g.condition(depth-1), g.number(depth-1)
	return g.one(a, a+" && "+b, a+" || "+b, "!("+a+")", n+" > "+g.number(0), "version_at_least("+text+", "+literal+")",
		"contains([\"debian\", "+literal+"], "+text+")", text+" > "+literal, text+" == "+n, "can(regex(\"^[0-9]+\", "+text+"))",
		"regex(\"^[0-9]+\", "+text+") == \"6\"", "lower("+text+") == "+literal, "("+a+" ? "+b+" : "+a+")",
		"format(\"%s\", "+text+") != "+literal, "{ debian = true }["+text+"]", "try(regex(\"^[0-9]+\", "+text+"), \"0\") == "+literal, text)
}
