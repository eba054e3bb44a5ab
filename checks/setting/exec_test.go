package setting_test

import (
	"io/fs"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
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
	if early := checks.Early(boot); len(early) > 0 {
		t.Errorf("nodegate-apply runs %d programs", len(early))
	}
	recorder, snapshot := host.Record(m.Host())
	for what, h := range map[string]*host.Host{"a recording": recorder, "a replay": host.Replay(snapshot)} {
		for _, res := range checks.Inspect(t.Context(), h, checks.Boot, boot[:1]).Results {
			assert.True(t, res.Err != nil && res.Err.Error() == host.ErrNoPrograms.Error(), "%s: %+v", what, res)
		}
	}
}

// TestExecInImage judges the files of programs that do not run there.
func TestExecInImage(t *testing.T) {
	m := &hosttest.Machine{
		Files: map[string]string{"/bin/fine": "x", "/bin/data": "x", "/bin/open": "x", "/bin/dir/file": "x"},
		Modes: map[string]fs.FileMode{"/bin/data": 0o644, "/bin/open": 0o777},
	}
	p := checkstest.Load(t, `
		check "exec.fine" { command = ["/bin/fine", "-a"] }
		check "exec.none" { command = ["/bin/none"] }
		check "exec.data" { command = ["/bin/data"] }
		check "exec.open" {
		  command  = ["/bin/open"]
		  severity = "warn"
		}
		gate { on_held = ["/bin/pager", "x"] }`)
	image := catalog.For(p, checks.Image)
	checkstest.Equal(t, "image", `
pass image.exec.fine
fail image.exec.none: want /bin/none, which only root can write, got /bin/none does not exist
fail image.exec.data: want /bin/data, which only root can write, got /bin/data is not executable
warn image.exec.open: want /bin/open, which only root can write, got /bin/open may be written or replaced by users other than root
fail image.on_held: want /bin/pager, which only root can write, got /bin/pager does not exist
fail`, checkstest.Print(checks.Inspect(t.Context(), m.Host(), checks.Image, image)))
	for _, res := range checks.Inspect(t.Context(), host.Replay(&host.Snapshot{Root: "/"}), checks.Image, image).Results {
		assert.True(t, !res.Verdict.Fine(), "a replay: %+v", res)
	}
}
