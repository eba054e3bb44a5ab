package setting_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestExec(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{}, Ran: map[string]host.Ran{
		"/bin/fine -a": {Status: 0, Line: "8 GPUs"}, "/bin/gone": {Status: 1, Line: "gpu 3 is gone"}, "/bin/mute": {Status: 1},
		"/bin/odd": {Status: 77, Line: "no nvidia-smi"},
	}}
	p := checkstest.Load(t, `
		check "exec.fine" { command = ["/bin/fine", "-a"] }
		check "exec.gone" { command = ["/bin/gone"] }
		check "exec.mute" {
		  command  = ["/bin/mute"]
		  severity = "warn"
		}
		check "exec.odd" {
		  command = ["/bin/odd"]
		  stages  = ["run"]
		}
		check "exec" { command = ["/bin/none"] }
		check "exec.off" {
		  command = ["/bin/gone"]
		  when    = false
		}`)
	boot := catalog.For(p, checks.Boot)
	checkstest.Equal(t, "boot", `
pass exec.fine
fail exec.gone: want exit status 0, got gpu 3 is gone
unknown exec [/bin/none was not run: file does not exist]
skipped exec.off: its when condition is false here (test.hcl:15:15)
fail`, checkstest.Print(checks.Inspect(t.Context(), m.Host(), checks.Boot, boot)))
	checkstest.Equal(t, "run", `
pass exec.fine
fail exec.gone: want exit status 0, got gpu 3 is gone
warn exec.mute: want exit status 0, got exit status 1
unknown exec.odd [/bin/odd exited with status 77, which means unknown: no nvidia-smi]
unknown exec [/bin/none was not run: file does not exist]
skipped exec.off: its when condition is false here (test.hcl:15:15)
fail`, checkstest.Print(checks.Inspect(t.Context(), m.Host(), checks.Run, catalog.For(p, checks.Run))))
	if n := len(catalog.For(p, checks.Image)); n > 0 {
		t.Errorf("%d checks of an image", n)
	}
	if early := checks.Early(boot); len(early) > 0 {
		t.Errorf("nodegate-apply runs %d programs", len(early))
	}
	recorder, snapshot := host.Record(m.Host())
	for what, h := range map[string]*host.Host{"a recording": recorder, "a replay": host.Replay(snapshot)} {
		for _, res := range checks.Inspect(t.Context(), h, checks.Boot, boot[:1]).Results {
			if res.Err == nil || res.Err.Error() != host.ErrNoPrograms.Error() {
				t.Errorf("%s: %+v", what, res)
			}
		}
	}
}
