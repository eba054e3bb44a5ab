package proxy

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"nodegate/internal/audit/compare"
	"nodegate/internal/audit/expect"
	"nodegate/internal/audit/model"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestKubernetesTables judges the tables that kube-proxy's own tests expect. With its form unknown, a table is not a fault. It reads them
// from the modules of the oldest and the newest release, with LONG=1 of every minor release.
func TestKubernetesTables(t *testing.T) {
	versions := []string{"1.30.14", "1.37.2"}
	if os.Getenv("LONG") != "" { // 1.33 changed its base chains in a patch release
		versions = append(versions, "1.31.14", "1.32.13", "1.33.0", "1.33.13", "1.34.4", "1.35.4", "1.36.3")
	}
	for _, version := range versions {
		minor, err := strconv.Atoi(strings.Split(version, ".")[1])
		require.NoError(t, err)
		var module struct{ Dir string }
		download := exec.Command("go", "mod", "download", "-json", "k8s.io/kubernetes@v"+version)
		download.Dir, download.Env = t.TempDir(), append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		out, err := download.Output()
		hosttest.Need(t, err == nil, "the source of kube-proxy "+version)
		require.NoError(t, json.Unmarshal(out, &module))
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(module.Dir, "pkg/proxy/nftables/proxier_test.go"), nil, 0)
		require.NoError(t, err)
		n := newNetns(t, "nft")
		tables := expectedTables(t, file)
		for i, table := range tables {
			set := mustParse(t, n.run(t, "flush ruleset\n"+table, "sh", "-c", "nft -f - && nft -j list ruleset"))
			rep := Judge(set, Options{})
			if v := rep.Version; len(rep.Findings)+len(rep.Notes) > 0 || v.Min > minor || v.Max < minor {
				t.Errorf("%s, table %d: version %s, %+v %q", version, i, v, rep.Findings, rep.Notes)
			}
			for _, f := range set[0].NFT {
				notAccused(t, fmt.Sprintf("%s, table %d", version, i), model.FromNFT(f))
			}
		}
		if len(tables) < 10 {
			t.Errorf("%s: only %d tables", version, len(tables))
		}
	}
}

// TestFutureForms changes healthy tables as a later kube-proxy may write them. None is accused: a note names the form.
func TestFutureForms(t *testing.T) {
	rule := regexp.MustCompile(`\{"rule": \{"family": "ip6?", "table": "kube-proxy", "chain": "(service|endpoint)-[^}]*"expr": \[`)
	for _, file := range []string{"nft-list-ruleset.json", "fields-nft.json"} {
		text := readFile(t, file)
		for _, f := range mustParse(t, text)[0].NFT {
			notAccused(t, file, model.FromNFT(f))
		}
		for what, changed := range map[string]string{
			"a mark in every rule": rule.ReplaceAllString(text, `$0{"mangle": {"key": {"ct": {"key": "mark"}}, "value": 1}}, `),
			"dnat persistent":      strings.ReplaceAll(text, `{"dnat": {`, `{"dnat": {"flags": "persistent", `),
			"not at random":        strings.ReplaceAll(text, `"mode": "random"`, `"mode": "inc"`),
			"a jump to a new chain": editedNFT(t, text, after(`"ip", "table": "kube-proxy", "name": "nat-postrouting"`,
				`{"chain": {"family": "ip", "table": "kube-proxy", "name": "quic-check", "handle": 900}}`),
				before(`"ip", "table": "kube-proxy", "chain": "nat-postrouting"`, `{"rule": {"family": "ip", "table": "kube-proxy", `+
					`"chain": "nat-postrouting", "handle": 901, "expr": [{"jump": {"target": "quic-check"}}]}}`)),
		} {
			rep := Judge(mustParse(t, changed), Options{})
			if wantOne(t, rep, ""); changed == text || len(rep.Notes) == 0 {
				t.Errorf("%s, %s: notes %q", file, what, rep.Notes)
			}
		}
	}
}

// TestFutureSaves does the same in iptables mode.
func TestFutureSaves(t *testing.T) {
	text := readFile(t, "iptables-save.txt")
	for what, e := range map[string]edit{
		"a condition in every DNAT":         subAll("^-A KUBE-SEP-.*DNAT", " -j DNAT", " -m cgroup --path x -j DNAT"),
		"a rule behind the mark":            after("^-A KUBE-MARK-MASQ", "-A KUBE-MARK-MASQ -j CONNMARK --save-mark"),
		"a rule behind the masquerade":      after("^-A KUBE-POSTROUTING .*MASQ", "-A KUBE-POSTROUTING -m mark --mark 0x8/0x8 -j ACCEPT"),
		"a chain before that of node ports": before("^-A KUBE-SERVICES .*nodeports", "-A KUBE-SERVICES -m set --match-set kube dst -j ACCEPT"),
	} {
		e.op = strings.TrimSuffix(e.op, "-all") + "-all"
		rep := Judge(mustParse(t, editedSave(t, text, e)), Options{})
		if wantOne(t, rep, ""); len(rep.Notes) == 0 {
			t.Errorf("%s: no note", what)
		}
	}
}

// notAccused fails if a healthy table is accused when its form is not known.
func notAccused(t *testing.T, what string, m *model.NFT) {
	t.Helper()
	own := compare.DiffNFT(m, expect.NFTForms(), true)
	forms := slices.DeleteFunc(expect.NFTForms(), func(f expect.NFTForm) bool { return f.Min >= own.Min && f.Max <= own.Max })
	if r := compare.DiffNFT(m, forms, true); len(r.List) > 0 || len(r.Unknown) == 0 {
		t.Errorf("%s: its form (%d to %d) not known: notes %q, accused %+v", what, own.Min, own.Max, r.Unknown, r.List)
	}
}

// expectedTables returns the values of the variables `expected`, in the order in which nft can load their lines.
func expectedTables(t *testing.T, file *ast.File) (tables []string) {
	t.Helper()
	base := map[string]string{}
	var value func(e ast.Expr) string
	value = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			text, _ := strconv.Unquote(e.Value)
			return text
		case *ast.Ident:
			return base[e.Name]
		case *ast.BinaryExpr:
			return value(e.X) + value(e.Y)
		case *ast.CallExpr:
			if len(e.Args) == 1 {
				return value(e.Args[0])
			}
		}
		return ""
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if len(n.Values) == 1 {
				base[n.Names[0].Name] = value(n.Values[0])
			}
		case *ast.AssignStmt:
			name, ok := n.Lhs[0].(*ast.Ident)
			if !ok {
				break
			}
			base[name.Name] = value(n.Rhs[0])
			if name.Name != "expected" || !strings.Contains(base["expected"], "add table ") {
				break
			}
			var text strings.Builder
			lines := strings.Split(base["expected"], "\n")
			for _, kind := range []string{"table", "counter", "chain", "set", "map", "rule", "element"} {
				for _, l := range lines {
					if l = strings.TrimSpace(l); strings.HasPrefix(l, "add "+kind+" ") {
						text.WriteString(l + "\n")
					}
				}
			}
			tables = append(tables, text.String())
		}
		return true
	})
	return tables
}
