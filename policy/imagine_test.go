package policy_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"nodegate/policy"
	"nodegate/policy/kernels"
)

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
		if _, diags := policy.Load(files, known()); diags.HasErrors() || policy.Lint(files, known()).HasErrors() {
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
	if right < 40 || wrong < 40 {
		t.Errorf("Lint accepts %d policies and rejects %d: too few to prove anything", right, wrong)
	}
}

// TestBuiltinsEvaluate: the built-in policies pass Lint.
func TestBuiltinsEvaluate(t *testing.T) {
	for _, name := range policy.Builtins() {
		f, err := policy.Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		if diags := policy.Lint([]policy.File{f}, known()); len(diags) > 0 {
			t.Errorf("%s: %v", name, diags)
		}
	}
}

// TestRecordedOffloads: a policy can name every offload of the recorded kernels.
func TestRecordedOffloads(t *testing.T) {
	recorded, err := kernels.Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range recorded.Offloads {
		load(t, "link \"a\" {\n match { name = \"a\" }\n offload = { "+name+" = true }\n}\n")
	}
}

type generator struct{ *rand.Rand }

func (g generator) one(of ...string) string { return of[g.IntN(len(of))] }

// facts returns a node's facts, some of them unknown.
func (g generator) facts() map[string]any {
	version := func() string {
		v := fmt.Sprint(g.IntN(30))
		for range g.IntN(3) {
			v += fmt.Sprintf(".%d", g.IntN(60))
		}
		return v + g.one("", "-rc1", "-28-cloud-amd64", ".el8")
	}
	word := func() string {
		return g.one("debian", "ubuntu", "flatcar", "", "12", "iptables", "aws", "cbr0", "é ", version())
	}
	facts := map[string]any{
		"node.cpus": 1 + g.Int64N(8192), "node.memory": (1024 + g.Int64N(1<<32)) << 10, "systemd.version": 200 + g.Int64N(100),
		"kernel.release": version(), "kernel.version": strings.SplitN(version(), "-", 2)[0], "os.version": g.one("", word(), version()),
		"kubelet.version": version(), "os.id": word(), "cloud.provider": word(), "cni.name": word(), "kube_proxy.mode": word(),
	}
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
