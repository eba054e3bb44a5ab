package catalog_test

import (
	"strings"
	"testing"

	"nodegate/checks/catalog"
)

// TestProblemsSayEverything: every problem has all its texts.
func TestProblemsSayEverything(t *testing.T) {
	seen := map[string]bool{}
	for _, j := range catalog.Problems() {
		for what, text := range map[string]string{"Detects": j.Detects, "Symptom": j.Symptom, "How": j.How, "Remedy": j.Remedy, "Ref": j.Ref,
			"Severity": string(j.Severity)} {
			if strings.TrimSpace(text) == "" {
				t.Errorf("%s has no %s", j.Name, what)
			}
		}
		if seen[j.Name] || j.Name != strings.ToLower(j.Name) || len(j.Stages) == 0 || j.Inspect == nil {
			t.Errorf("%q is duplicated, not lower case, or without stages", j.Name)
		}
		seen[j.Name] = true
	}
}
