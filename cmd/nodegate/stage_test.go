package main

import (
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/policy"
)

// TestFittingStage: without --stage, check uses stage run if kubelet's unit is active, and counts the checks that it leaves
// out. Another verb, an explicit stage and a name decide otherwise.
func TestFittingStage(t *testing.T) {
	builtin, err := policy.Builtin("kubernetes")
	require.NoError(t, err)
	p, diags := policy.Load([]policy.File{builtin}, policy.Options{Checks: catalog.Known().Checks})
	require.True(t, !diags.HasErrors(), "%v", diags)
	here := checkRun{asIs: true}
	with := func(change func(*checkRun)) checkRun { o := here; change(&o); return o }
	for name, c := range map[string]struct {
		o         checkRun
		state     string // of kubelet's unit
		noSystemd bool
		want      checks.Stage
		left      string // in the last line
		fails     string
	}{
		"a running node":           {o: here, state: "active", want: checks.Run, left: "stage boot left out: run `nodegate check --stage boot`"},
		"a unit that reloads":      {o: here, state: "reloading", want: checks.Run, left: "stage boot left out"},
		"a held node":              {o: here, state: "activating", want: checks.Boot, left: "stage run left out: run `nodegate check --stage run`"},
		"a failed unit":            {o: here, state: "failed", want: checks.Boot, left: "stage run left out"},
		"no systemd":               {o: here, state: "active", noSystemd: true, want: checks.Boot, left: "stage run left out"},
		"apply and gate":           {o: checkRun{}, state: "active", want: checks.Boot},
		"an explicit stage":        {o: with(func(o *checkRun) { o.stage = "boot" }), state: "active", want: checks.Boot},
		"a recording of stage run": {o: with(func(o *checkRun) { o.recorded = checks.Run }), want: checks.Run, left: "stage boot left out"},
		"a recording of stage all": {o: with(func(o *checkRun) { o.recorded = checks.All }), state: "active", want: checks.All},
		"a name of stage run":      {o: with(func(o *checkRun) { o.names = []string{"mtu.chain"} }), state: "inactive", want: checks.Run},
		"a name of stage boot":     {o: with(func(o *checkRun) { o.names = []string{"kubelet.values"} }), state: "active", want: checks.Boot},
		"a name of another stage": {o: with(func(o *checkRun) { o.stage, o.names = "boot", []string{"mtu.chain"} }),
			fails: "mtu.chain is a check of stage run, not of stage boot; use --stage run"},
		"a name of an image": {o: with(func(o *checkRun) { o.names = []string{"image.swap"} }), fails: "image.swap is a check of stage image"},
		"a check to skip": {o: with(func(o *checkRun) { o.stage, o.skip = "boot", []string{"swap"} }), want: checks.Boot,
			left: "1 check left out by --skip"},
		"an unknown check to skip": {o: with(func(o *checkRun) { o.skip = []string{"swpa"} }), fails: `Did you mean "swap"`},
	} {
		m := &hosttest.Machine{Files: map[string]string{}, Units: map[string][2]string{"kubelet.service": {c.state, "enabled"}}}
		if !c.noSystemd {
			m.Files["/run/systemd/system/x"] = ""
		}
		s, err := c.o.selectChecks(t.Context(), m.Host(), p)
		if c.fails != "" {
			assert.ErrorContains(t, err, c.fails, "%s", name)
			continue
		}
		if err != nil || s.stage != c.want || !strings.Contains(s.left, c.left) || (c.left == "") != (s.left == "") || len(s.list) == 0 {
			t.Errorf("%s: stage %s, %q, %d checks, %v", name, s.stage, s.left, len(s.list), err)
		}
	}
}
