package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// everyRequirement breaks each module, sysctl and link of the built-in policies.
const everyRequirement = "TestEveryBuiltinRequirementFails"

// shownFailing is where each check is shown to fail, as read from the tests
// themselves: a scenario of the virtual machine that breaks it, and tests that
// name it and expect it to fail. What is not there any more is not listed.
func shownFailing(t *testing.T) map[string][]string {
	t.Helper()
	shown := map[string]map[string]bool{}
	add := func(check, where string) {
		if shown[check] == nil {
			shown[check] = map[string]bool{}
		}
		shown[check][where] = true
	}
	inScenarios(t, add)
	tests := inTests(t, add)
	all := map[string][]string{}
	for check, where := range shown {
		all[check] = slices.Sorted(maps.Keys(where))
	}
	if !slices.Contains(tests, everyRequirement) {
		t.Errorf("there is no %s any more", everyRequirement)
	}
	return all
}

// inScenarios reads the calls of broken and flipped in the scenarios' scripts.
func inScenarios(t *testing.T, add func(check, where string)) {
	t.Helper()
	scripts, err := filepath.Glob("../../images/vm/scenarios/*/boot*.sh")
	if err != nil || scripts == nil {
		t.Fatalf("scenarios: %v, %v", scripts, err)
	}
	broken := regexp.MustCompile(`(?m)^broken (?:run|both) '([^']+)' '([^']*)'`)
	flipped := regexp.MustCompile(`(?m)^flipped (\S+) \S+ \S+ '([^']*)'`)
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		where := "VM " + filepath.Base(filepath.Dir(script))
		for _, m := range broken.FindAllStringSubmatch(string(text), -1) {
			for _, check := range strings.Fields(m[1] + " " + m[2]) {
				if !strings.HasSuffix(check, "?") { // there it cannot tell
					add(check, where)
				}
			}
		}
		for _, m := range flipped.FindAllStringSubmatch(string(text), -1) {
			add("sysctl."+m[1], where)
			for _, check := range strings.Fields(m[2]) {
				add(check, where)
			}
		}
	}
}

// inTests reads the tests: a declaration that has a check's name as a string and
// says fail or warn. A test of the audit or of file trees names only what it
// expects to be wrong. The answer is the names of all tests.
func inTests(t *testing.T, add func(check, where string)) (tests []string) {
	t.Helper()
	for _, dir := range []string{"checks/catalog", "checks/conntrack", "checks/kubelet", "checks/kubeproxy", "checks/links", "checks/packetfilter", "checks/setting", "checks/writers", "images/vm"} {
		files, err := filepath.Glob("../../" + dir + "/*_test.go")
		if err != nil || files == nil {
			t.Fatalf("%s: %v, %v", dir, files, err)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range file.Decls {
				where := strings.TrimPrefix(name, "../../")
				if f, is := decl.(*ast.FuncDecl); is && strings.HasPrefix(f.Name.Name, "Test") {
					where = f.Name.Name
					tests = append(tests, where)
				}
				for _, w := range namedAsFailing(decl, dir == "images/vm" || dir == "checks/kubeproxy") {
					add(w, where)
				}
			}
		}
	}
	return tests
}

// namedAsFailing is the strings of a declaration that stand in a call or in a
// literal that says fail or warn; in one that says nothing of the outcome, those
// of a declaration that does. All is every string.
func namedAsFailing(decl ast.Decl, all bool) (names []string) {
	fails := all || outcome(decl) == "fails"
	ast.Inspect(decl, func(n ast.Node) bool {
		var inside []ast.Expr
		says := ""
		switch n := n.(type) {
		case *ast.CallExpr:
			inside, says = n.Args, outcome(n)
		case *ast.CompositeLit:
			if list, is := n.Type.(*ast.ArrayType); is && !all {
				if of, is := list.Elt.(*ast.Ident); is && of.Name == "string" {
					return true // a list of names says nothing of each
				}
			}
			inside, says = n.Elts, outcome(n)
		case *ast.BinaryExpr:
			inside = []ast.Expr{n.X, n.Y}
		case *ast.ValueSpec:
			inside = n.Values
		}
		for _, e := range inside {
			if pair, is := e.(*ast.KeyValueExpr); is {
				e = pair.Value
			}
			if name, is := stringOf(e); is && (all || says == "fails" || says == "" && fails) {
				names = append(names, name)
			}
		}
		return true
	})
	return names
}

// outcome is "fails" where a string begins with fail or warn or a verdict is
// Fail or Warn, "holds" where one begins with another verdict, else "".
func outcome(n ast.Node) (says string) {
	ast.Inspect(n, func(n ast.Node) bool {
		word := ""
		switch n := n.(type) {
		case *ast.BasicLit:
			word, _ = stringOf(n)
		case *ast.SelectorExpr:
			word = strings.ToLower(n.Sel.Name)
		}
		word = strings.TrimSpace(word)
		for _, verdict := range []string{"fail", "warn", "pass", "skip", "unknown"} {
			switch {
			case !strings.HasPrefix(word, verdict):
			case verdict == "fail" || verdict == "warn":
				says = "fails"
			case says == "":
				says = "holds"
			}
		}
		return true
	})
	return says
}

func stringOf(e ast.Expr) (string, bool) {
	lit, is := e.(*ast.BasicLit)
	if !is || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}
