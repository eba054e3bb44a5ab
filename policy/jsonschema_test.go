package policy

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const jsonSchema = "../docs/policy.schema.json"

// TestJSONSchemaNames: docs/policy.schema.json has the blocks and attributes of the language.
func TestJSONSchemaNames(t *testing.T) {
	type object struct {
		Properties map[string]json.RawMessage
		Defs       map[string]struct{ Properties map[string]json.RawMessage } `json:"$defs"`
	}
	text, err := os.ReadFile(jsonSchema)
	if err != nil {
		t.Fatal(err)
	}
	var schema object
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	names := func(all map[string]json.RawMessage) []string {
		delete(all, "//")
		return slices.Sorted(maps.Keys(all))
	}
	var blocks []string
	for _, b := range fileSchema().Blocks {
		blocks = append(blocks, b.Type)
	}
	slices.Sort(blocks)
	if d := cmp.Diff(blocks, names(schema.Properties)); d != "" {
		t.Errorf("blocks (-language +schema):\n%s", d)
	}
	for _, name := range append(blocks, "match") {
		if name == "override" {
			continue // its attributes depend on the requirement
		}
		var attributes []string
		for _, a := range blockSchema(name).Attributes {
			attributes = append(attributes, a.Name)
		}
		for _, b := range blockSchema(name).Blocks {
			attributes = append(attributes, b.Type)
		}
		slices.Sort(attributes)
		if d := cmp.Diff(attributes, names(schema.Defs[name].Properties)); d != "" {
			t.Errorf("%s (-language +schema):\n%s", name, d)
		}
	}
}
