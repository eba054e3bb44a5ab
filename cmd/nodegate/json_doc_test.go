package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// documents are the JSON documents that other programs read, with the Go type of each.
var documents = []struct{ title, about, dir, root string }{
	{"Report", "`check`, `apply`, `audit` and `image test` with `--format json`; `/run/nodegate/report.json` of the gate; the input of `on_held`",
		"cmd/nodegate/internal/report", "Report"},
	{"Watch", "`/run/nodegate/watch.json`; `status --format json`", "cmd/nodegate/internal/report", "Watch"},
	{"Ways", "`audit --service --from` with `--format json`", "cmd/nodegate/internal/report", "Ways"},
	{"Change log", "each line of `/run/nodegate/changes.jsonl`", "cmd/nodegate/internal/report", "AppliedChange"},
	{"FleetReport", "`report --format json`", "cmd/nodegate/internal/fleet", "jsonFleet"},
	{"Preview", "`preview --format json`", "cmd/nodegate/internal/preview", "document"},
	{"Plan", "`plan --format json`, `apply --dry-run --format json`", "cmd/nodegate/internal/report", "PlanDocument"},
	{"Policy", "`policy show --format json`", "cmd/nodegate", "policyDocument"},
	{"Explanations", "`explain --format json`", "cmd/nodegate", "explanations"},
	{"Version", "`version --format json`", "cmd/nodegate", "build"},
	{"Bridge probe", "`probe bridge --format json`", "checks/datapath", "BridgeResult"},
	{"Service probe", "`probe service --format json`", "checks/datapath", "ServiceResult"},
	{"Service trace", "`probe service --trace --format json`", "checks/datapath", "ServiceTrace"},
}

const jsonDocHead = `# JSON

Every field of every JSON document that nodegate writes for other programs. Fields are added, never renamed or removed within a
version. A field that is marked *optional* is left out if it is empty. Times are RFC 3339 in UTC. ` + "`UPDATE=1 go test ./cmd/nodegate`" + `
writes this page from the Go types and their comments.
`

// TestJSONDoc: docs/json.md has every field of the types, with the meaning that its comment gives.
func TestJSONDoc(t *testing.T) {
	types := jsonTypes{t: t, dirs: map[string]map[string]*ast.TypeSpec{}}
	var b strings.Builder
	b.WriteString(jsonDocHead)
	for _, d := range documents {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n| field | type | meaning |\n|---|---|---|\n", d.title, d.about)
		types.write(&b, d.dir, d.root, "")
	}
	const file = "../../docs/json.md"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(text), b.String()); d != "" {
		t.Errorf("run UPDATE=1 go test ./cmd/nodegate (-file +types):\n%s", d)
	}
}

// jsonTypes are the type declarations of directories, parsed on demand.
type jsonTypes struct {
	t    *testing.T
	dirs map[string]map[string]*ast.TypeSpec
}

// find returns a declaration of a directory.
func (j jsonTypes) find(dir, name string) *ast.TypeSpec {
	if j.dirs[dir] == nil {
		j.dirs[dir] = map[string]*ast.TypeSpec{}
		files, err := filepath.Glob("../../" + dir + "/*.go")
		if err != nil || len(files) == 0 {
			j.t.Fatalf("no Go files in %s: %v", dir, err)
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			if err != nil {
				j.t.Fatal(err)
			}
			for _, decl := range parsed.Decls {
				if types, is := decl.(*ast.GenDecl); is {
					for _, spec := range types.Specs {
						if s, is := spec.(*ast.TypeSpec); is {
							j.dirs[dir][s.Name.Name] = s
						}
					}
				}
			}
		}
	}
	return j.dirs[dir][name]
}

// write writes a row for each field of a struct, and of the structs in it.
func (j jsonTypes) write(b *strings.Builder, dir, name, path string) {
	spec := j.find(dir, name)
	if spec == nil {
		j.t.Fatalf("%s has no type %s", dir, name)
	}
	fields, is := spec.Type.(*ast.StructType)
	if !is {
		j.t.Fatalf("%s.%s is not a struct", dir, name)
	}
	for _, f := range fields.Fields.List {
		tag := ""
		if f.Tag != nil {
			text, _ := strconv.Unquote(f.Tag.Value)
			tag = reflect.StructTag(text).Get("json")
		}
		key, optional, _ := strings.Cut(tag, ",")
		kind, inDir, inName := j.kind(dir, f.Type)
		switch {
		case key == "-" || len(f.Names) == 1 && !f.Names[0].IsExported():
			continue
		case len(f.Names) == 0 && key == "": // embedded
			j.write(b, inDir, inName, path)
			continue
		}
		if strings.HasPrefix(optional, "omit") {
			kind += ", optional"
		}
		meaning := strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
		if meaning == "" {
			j.t.Errorf("%s.%s: the field %s has no comment", dir, name, key)
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s |\n", path, key, kind, strings.ReplaceAll(meaning, "|", `\|`))
		if inName != "" {
			suffix := "."
			if strings.HasPrefix(kind, "list") {
				suffix = "[]."
			}
			j.write(b, inDir, inName, path+key+suffix)
		}
	}
}

// kind returns a type as JSON has it, and of an object the directory and name of its struct.
func (j jsonTypes) kind(dir string, e ast.Expr) (kind, inDir, inName string) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return j.kind(dir, e.X)
	case *ast.ArrayType:
		of, inDir, inName := j.kind(dir, e.Elt)
		return "list of " + of + "s", inDir, inName
	case *ast.MapType:
		of, inDir, inName := j.kind(dir, e.Value)
		return "object of " + of + "s", inDir, inName
	case *ast.SelectorExpr:
		pkg := e.X.(*ast.Ident).Name
		switch pkg {
		case "netip":
			return "string", "", ""
		case "time":
			return map[string]string{"Time": "time", "Duration": "nanoseconds"}[e.Sel.Name], "", ""
		}
		for _, known := range []string{"internal/verdict", "checks", "internal/host", "policy", "internal/audit", "internal/audit/proxy", "internal/audit/kubeproxy", "internal/kube",
			"checks/catalog",
			"cmd/nodegate/internal/report", "internal/audit/settle", "internal/host/netns"} {
			if filepath.Base(known) == pkg {
				return j.kind(known, e.Sel)
			}
		}
		j.t.Fatalf("%s: package %s of %s is not known here", dir, pkg, e.Sel.Name)
	case *ast.Ident:
		switch e.Name {
		case "string", "error":
			return "string", "", ""
		case "bool":
			return "boolean", "", ""
		case "int", "int64", "uint8", "uint16", "uint32", "uint64", "float64":
			return "number", "", ""
		}
		if kind := map[string]string{"Verdict": "verdict", "Millis": "milliseconds"}[e.Name]; kind != "" {
			return kind, "", ""
		}
		spec := j.find(dir, e.Name)
		if spec == nil {
			j.t.Fatalf("%s: no type %s", dir, e.Name)
		}
		if _, is := spec.Type.(*ast.StructType); is {
			return "object", dir, e.Name
		}
		return j.kind(dir, spec.Type)
	}
	j.t.Fatalf("%s: a type that the page cannot describe: %T", dir, e)
	return "", "", ""
}
