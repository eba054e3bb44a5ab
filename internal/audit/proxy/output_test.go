package proxy

import (
	"encoding/json"
	"strings"
	"testing"

	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

func TestReportJSON(t *testing.T) {
	rep := Judge(mustParse(t, readFile(t, "iptables-save.txt")+"\n"), Options{})
	text, err := json.Marshal(rep)
	require.NoError(t, err)
	var again Judgment
	require.NoError(t, json.Unmarshal(text, &again))
	if again.Services[0].Verdict != verdict.Pass || !strings.Contains(string(text), `"verdict":"pass"`) ||
		!strings.Contains(string(text), `"findings":[]`) {
		t.Errorf("%.500s", text)
	}
}

// TestKinds checks that every kind has all texts that an operator needs, and a unique name.
func TestKinds(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Kinds() {
		if seen[k.Name] || !strings.HasPrefix(k.Name, "kubeproxy.") || strings.ToLower(k.Name) != k.Name || k.Summary == "" ||
			k.Remedy == "" || k.Verdict == verdict.Pass {
			t.Errorf("%+v", k)
		}
		seen[k.Name] = true
	}
}
