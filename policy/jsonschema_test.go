package policy

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

const jsonSchema = "../docs/policy.schema.json"

// TestJSONSchemaNames: docs/policy.schema.json has the blocks and attributes of the language.
func TestJSONSchemaNames(t *testing.T) {
	type object struct {
		Properties map[string]json.RawMessage
		Defs       map[string]struct{ Properties map[string]json.RawMessage } `json:"$defs"`
	}
	text, err := os.ReadFile(jsonSchema)
	require.NoError(t, err)
	var schema object
	require.NoError(t, json.Unmarshal(text, &schema))
	names := func(all map[string]json.RawMessage) []string {
		delete(all, "//")
		return slices.Sorted(maps.Keys(all))
	}
	var blocks []string
	for _, b := range fileSchema().Blocks {
		blocks = append(blocks, b.Type)
	}
	slices.Sort(blocks)
	delete(schema.Properties, fileSchema().Attributes[0].Name)
	assert.Diff(t, names(schema.Properties), blocks, "blocks (-language +schema)")
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
		assert.Diff(t, names(schema.Defs[name].Properties), attributes, "%s (-language +schema)", name)
	}
}
