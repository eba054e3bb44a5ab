package catalog_test

import (
	"slices"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/policy"
)

// TestProblemsSayEverything: every problem has all its texts.
func TestProblemsSayEverything(t *testing.T) {
	seen := map[string]bool{}
	for _, j := range catalog.Problems() {
		for what, text := range map[string]string{"Detects": j.Detects, "Symptom": j.Symptom, "How": j.How, "Remedy": j.Remedy, "Ref": j.Ref,
			"Severity": string(j.Severity)} {
			assert.True(t, strings.TrimSpace(text) != "", "%s has no %s", j.Name, what)
		}
		if seen[j.Name] || j.Name != strings.ToLower(j.Name) || len(j.Stages) == 0 || j.Inspect == nil {
			t.Errorf("%q is duplicated, not lower case, or without stages", j.Name)
		}
		seen[j.Name] = true
	}
}

// TestWarningsAtBoot: the gate checks the warnings that it can know from a few files, and apply, which runs earlier, does not.
func TestWarningsAtBoot(t *testing.T) {
	p := checkstest.Load(t, `use "kubernetes" {}`)
	at := func(list []checks.Check) (names []string) {
		for _, c := range list {
			if c.Metadata().Severity == policy.Warn {
				names = append(names, c.Name())
			}
		}
		return names
	}
	list := catalog.For(p, checks.Boot)
	early := at(checks.Early(list))
	for _, problem := range catalog.Problems() {
		if !problem.AtBoot {
			continue
		}
		if !slices.Contains(at(list), problem.Name) || slices.Contains(early, problem.Name) {
			t.Errorf("%s: the gate checks %v, apply %v", problem.Name, at(list), early)
		}
	}
	node := checkstest.Node(map[string]string{"/proc/mounts": "/dev/vdb /var/lib ext4 rw,noexec 0 0\n"}, nil)
	r := checkstest.On(t.Context(), t, node.Host(), checks.Boot, "kubelet.mounts", "")
	checkstest.Equal(t, "noexec", "warn", r.Verdict.String())
}
