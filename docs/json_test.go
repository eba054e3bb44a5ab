package docs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// documents are the JSON documents that other programs read, with the Go type of each, and calls that write it. A call of root runs in
// a scratch namespace.
var documents = []struct {
	name, dir, root string
	calls, asRoot   []string
}{
	{"Report", "cmd/nodegate/internal/report", "Report",
		[]string{"nodegate check --policy node.hcl --snapshot broken.json -f json", "nodegate audit --rules broken.txt -f json"},
		[]string{"nodegate apply --policy forward.hcl -f json", "nodegate gate --budget 10ms --policy hold.hcl || cat /run/nodegate/report.json"}},
	{"Watch", "cmd/nodegate/internal/report", "Watch", nil,
		[]string{"timeout 2 nodegate watch --policy forward.hcl --interval 1s || :; nodegate status --format json"}},
	{"Ways", "cmd/nodegate/internal/report", "Ways",
		nil, []string{"ip link add eth0 type veth peer name peer0; ip link set peer0 up; ip addr add 192.0.2.5/24 dev eth0; ip link set eth0 up; ip route add default via 192.0.2.1; " +
			"sed 's/ -m nfacct --nfacct-name  *[a-z_]*//' rules.txt | iptables-nft-restore; nodegate audit --service prod/np --from node -f json || :"}},
	{"Change", "cmd/nodegate/internal/report", "AppliedChange", nil,
		[]string{"nodegate apply --policy forward.hcl >&2; tail -n 1 /run/nodegate/changes.jsonl"}},
	{"FleetReport", "cmd/nodegate/internal/fleet", "Document", []string{"nodegate report pass.json fail.json unknown.json -f json"}, nil},
	{"Preview", "cmd/nodegate/internal/preview", "Summary", []string{"nodegate preview --policy node.hcl broken.json -f json"}, nil},
	{"Plan", "cmd/nodegate/internal/report", "PlanDocument", []string{"nodegate plan --root . --policy panic.hcl -f json"},
		[]string{"nodegate plan --policy forward.hcl -f json", "nodegate plan --policy unreadable.hcl -f json"}},
	{"Lint", "cmd/nodegate", "lintReport", []string{"nodegate lint -f json wrong.hcl"}, nil},
	{"Policy", "cmd/nodegate", "policyDocument", []string{"nodegate policy show -f json kubernetes"}, nil},
	{"PolicyList", "cmd/nodegate", "policyList", []string{"nodegate policy list -f json"}, nil},
	{"Explanations", "cmd/nodegate", "explanations", []string{"nodegate explain -f json"}, nil},
	{"Version", "cmd/nodegate", "build", []string{"nodegate version -f json"}, nil},
	{"BridgeProbe", "checks/datapath", "BridgeResult", nil, []string{"echo 1 >/proc/sys/net/ipv4/ip_forward; nodegate probe bridge --timeout 300ms --format json"}},
	{"ServiceProbe", "checks/datapath", "ServiceResult", nil,
		[]string{"nodegate probe service 127.0.0.1:1 -n 2 --attempt-timeout 100ms --format json"}},
}

const reportSchema = "json.schema.json"

// TestJSONSchemaOfTypes: docs/json.schema.json has every field of the types, with the meaning that its comment gives.
func TestJSONSchemaOfTypes(t *testing.T) {
	types := &jsonTypes{t: t, dirs: map[string]map[string]*ast.TypeSpec{}, used: map[string]string{}}
	for _, d := range documents {
		types.used[d.name] = d.dir + "." + d.root
	}
	var any []object
	for _, d := range documents {
		any = append(any, types.reference(d.name, d.dir, d.root))
	}
	text, err := json.MarshalIndent(object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", "The JSON documents of nodegate"},
		{"$comment", "UPDATE=1 go test ./docs writes this file from the Go types and their comments"},
		{"anyOf", any},
		{"$defs", types.defs},
	}, "", " ")
	require.NoError(t, err)
	text = append(text, '\n')
	assert.Golden(t, reportSchema, string(text))
}

// TestJSONSchemaOfOutput: a schema validator accepts what nodegate prints, and the examples of docs/json.md, as the document that they
// are. The schema is made strict for that: an output has no field that the schema does not describe.
func TestJSONSchemaOfOutput(t *testing.T) {
	hosttest.NeedProgram(t, "jsonschema")
	c := newContractor(t, "")
	c.inputs()
	texts := map[string][][]byte{}
	for _, d := range documents {
		for _, call := range d.calls {
			out, _ := c.exec("sh", "-c", call)
			texts[d.name] = append(texts[d.name], out)
		}
		if os.Geteuid() != 0 {
			continue
		}
		for _, call := range d.asRoot {
			out, _ := c.scratch(call)
			texts[d.name] = append(texts[d.name], out)
		}
	}
	page := require.ReadFile(t, "json.md")
	for _, example := range regexp.MustCompile("(?ms)^```json (\\w+)\n(.*?)^```").FindAllSubmatch(page, -1) {
		name := string(example[1])
		texts[name] = append(texts[name], example[2])
	}
	for _, d := range documents {
		if len(texts[d.name]) > 0 {
			assert.Equal(t, c.validate(d.name, texts[d.name]), "", "%s", d.name)
		}
		assert.True(t, bytes.Contains(page, []byte("`"+d.name+"`")), "docs/json.md does not name %s", d.name)
	}
	for _, wrong := range []string{`{}`, `{"apiVersion": "nodegate/v1", "kind": "Version"}`} {
		assert.True(t, c.validate("Report", [][]byte{[]byte(wrong)}) != "", "a valid Report: %s", wrong)
	}
}

// validate returns the messages of the validator about texts as a document of the schema.
func (c *contractor) validate(name string, texts [][]byte) string {
	c.Helper()
	text, err := os.ReadFile(reportSchema)
	require.NoError(c, err)
	var schema map[string]any
	require.NoError(c, json.Unmarshal(text, &schema))
	delete(schema, "anyOf")
	schema["$ref"] = "#/$defs/" + name
	for _, def := range schema["$defs"].(map[string]any) {
		def.(map[string]any)["additionalProperties"] = false
	}
	if text, err = json.Marshal(schema); err != nil {
		c.Fatal(err)
	}
	arguments := []string{c.dir + "/schema.json", "-F", "{error.json_path}: {error.message:.200}\n"}
	for i, text := range append([][]byte{text}, texts...) {
		file := fmt.Sprintf("%s/%s-%d.json", c.dir, name, i)
		if i == 0 {
			file = arguments[0]
		} else {
			arguments = append(arguments, "-i", file)
		}
		require.NoError(c, os.WriteFile(file, text, 0o600))
	}
	cmd := exec.CommandContext(c.Context(), "jsonschema", arguments...)
	cmd.Env = append(os.Environ(), "PYTHONWARNINGS=ignore")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	return fmt.Sprintf("%v\n%s", err, out)
}

// object is a JSON object with an order.
type object []member

type member struct {
	key   string
	value any
}

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, m := range o {
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s%q:%s", map[bool]string{true: "{", false: ","}[i == 0], m.key, value)
	}
	return append(b.Bytes(), '}'), nil
}

// jsonTypes are the type declarations of directories, parsed on demand.
type jsonTypes struct {
	t    *testing.T
	dirs map[string]map[string]*ast.TypeSpec
	defs object
	used map[string]string // the type of each definition
}

// find returns a declaration of a directory.
func (j jsonTypes) find(dir, name string) *ast.TypeSpec {
	if j.dirs[dir] == nil {
		j.dirs[dir] = map[string]*ast.TypeSpec{}
		files, err := filepath.Glob("../" + dir + "/*.go")
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

// reference returns a reference to the definition of a struct, which it adds.
func (j *jsonTypes) reference(name, dir, typeName string) object {
	is := dir + "." + typeName
	if j.used[name] != "" && j.used[name] != is {
		name = upper(filepath.Base(dir)) + name
	}
	j.used[name] = is
	if !slices.ContainsFunc(j.defs, func(m member) bool { return m.key == name }) {
		at := len(j.defs)
		j.defs = append(j.defs, member{name, nil})
		var properties object
		var required []string
		j.properties(dir, typeName, &properties, &required)
		j.defs[at].value = object{{"type", "object"}, {"required", required}, {"properties", properties}}
	}
	return object{{"$ref", "#/$defs/" + name}}
}

// properties adds the fields of a struct, and of the structs that it embeds.
func (j *jsonTypes) properties(dir, name string, properties *object, required *[]string) {
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
		key, option, _ := strings.Cut(tag, ",")
		switch {
		case key == "-" || len(f.Names) == 1 && !f.Names[0].IsExported():
			continue
		case len(f.Names) == 0 && key == "": // embedded
			inDir, inName := j.named(dir, f.Type)
			j.properties(inDir, inName, properties, required)
			continue
		}
		meaning := strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
		if meaning == "" {
			j.t.Errorf("%s.%s: the field %s has no comment", dir, name, key)
		}
		if !strings.HasPrefix(option, "omit") {
			*required = append(*required, key)
		}
		value := object{{"const", meaning}}
		if key != "apiVersion" && (key != "kind" || strings.Contains(meaning, " ")) {
			value = append(j.schema(dir, f.Type), member{"description", meaning})
		}
		*properties = append(*properties, member{key, value})
	}
}

// named returns the directory and the name of a type.
func (j *jsonTypes) named(dir string, e ast.Expr) (inDir, name string) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return j.named(dir, e.X)
	case *ast.Ident:
		return dir, e.Name
	case *ast.SelectorExpr:
		pkg := e.X.(*ast.Ident).Name
		if pkg == "netip" || pkg == "time" {
			return pkg, e.Sel.Name
		}
		known := []string{"internal/verdict", "checks", "internal/host", "policy", "internal/audit", "internal/audit/proxy",
			"internal/audit/model", "internal/audit/kubeproxy", "internal/kube", "checks/catalog", "cmd/nodegate/internal/report",
			"internal/audit/settle", "internal/host/netns"}
		if i := slices.IndexFunc(known, func(k string) bool { return filepath.Base(k) == pkg }); i >= 0 {
			return known[i], e.Sel.Name
		}
		j.t.Fatalf("%s: package %s of %s is not known here", dir, pkg, e.Sel.Name)
	}
	j.t.Fatalf("%s: a type that the schema cannot describe: %T", dir, e)
	return "", ""
}

// schema returns the schema of a type.
func (j *jsonTypes) schema(dir string, e ast.Expr) object {
	switch e := e.(type) {
	case *ast.StarExpr:
		return j.schema(dir, e.X)
	case *ast.ArrayType:
		return object{{"type", "array"}, {"items", j.schema(dir, e.Elt)}}
	case *ast.MapType:
		return object{{"type", "object"}, {"additionalProperties", j.schema(dir, e.Value)}}
	}
	inDir, name := j.named(dir, e)
	switch name {
	case "string", "error", "Addr", "AddrPort", "Prefix":
		return object{{"type", "string"}}
	case "bool":
		return object{{"type", "boolean"}}
	case "int", "int64", "uint8", "uint16", "uint32", "uint64", "Duration":
		return object{{"type", "integer"}}
	case "float64", "Millis":
		return object{{"type", "number"}}
	case "Time":
		return object{{"type", "string"}, {"format", "date-time"}}
	case "Verdict":
		return object{{"enum", []string{"pass", "warn", "fail", "unknown", "skipped"}}}
	}
	spec := j.find(inDir, name)
	if spec == nil {
		j.t.Fatalf("%s: no type %s", inDir, name)
	}
	if _, is := spec.Type.(*ast.StructType); is {
		return j.reference(upper(strings.TrimPrefix(name, "json")), inDir, name)
	}
	return j.schema(inDir, spec.Type)
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
