package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestMergeKeys: the expected values are those of sigs.k8s.io/yaml 1.6.0, with which kubelet reads
// its files.
func TestMergeKeys(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"x: &a {failSwapOn: false}\n<<: *a\n", `{"failSwapOn":false,"x":{"failSwapOn":false}}`},
		{"x: &a {failSwapOn: no}\n<<: *a\nfailSwapOn: yes\n", `{"failSwapOn":true,"x":{"failSwapOn":false}}`},
		{"x: &a {failSwapOn: no}\nfailSwapOn: yes\n<<: *a\n", `{"failSwapOn":false,"x":{"failSwapOn":false}}`}, // applied at its position
		{"<<: [{p: 1, q: {r: 1, s: 1}}, {p: 2, z: 2, q: {r: 2}}]\n", `{"p":1,"q":{"r":1,"s":1},"z":2}`},
		{"x: &a {p: 1}\nv: &b {<<: *a, q: 1}\n<<: *b\n", `{"p":1,"q":1,"v":{"p":1,"q":1},"x":{"p":1}}`},
		{"x: &a {p: 1}\n<<: *a\n<<: {p: 2}\n", `{"p":2,"x":{"p":1}}`},
		{"x: {p: 1}\n!!merge <<: {p: 2}\n", `{"p":2,"x":{"p":1}}`},
		{"'<<': {p: 1}\n", `{"\u003c\u003c":{"p":1}}`},
	} {
		settings, err := settingsOf([]byte(c.text))
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
		}
		if got, _ := json.Marshal(settings); string(got) != c.want {
			t.Errorf("%q\ngot  %s\nwant %s", c.text, got, c.want)
		}
	}
	for _, text := range []string{"<<: 3\n", "<<:\n", "x: &a [{p: 1}]\n<<: *a\n", "<<: [[{q: 1}]]\n", "v: {<<: 3}\n"} {
		if settings, err := settingsOf([]byte(text)); err == nil || !strings.Contains(err.Error(), "map merge requires map") {
			t.Errorf("%q: kubelet exits because of it, got %v, %v", text, settings, err)
		}
	}
	// Aliases must not expand a file beyond the bound.
	bomb := "a0: &a0 {p: 1}\n"
	for i := 1; i < 40; i++ {
		bomb += fmt.Sprintf("a%d: &a%d {<<: [*a%d, *a%d]}\n", i, i, i-1, i-1)
	}
	if _, err := settingsOf([]byte(bomb)); err != nil {
		t.Error(err)
	}
}

// TestYAMLErrorHasNoValue: also a number may be a secret.
func TestYAMLErrorHasNoValue(t *testing.T) {
	var to struct{ Args []string }
	for _, value := range []string{"97531", "s3cret"} {
		if err := UnmarshalYAML([]byte("args: "+value), &to); err == nil || strings.Contains(err.Error(), value) {
			t.Errorf("%s: %v", value, err)
		}
	}
}
