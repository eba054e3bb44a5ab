package kubelet_test

import (
	"maps"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	filetree "nodegate/internal/host/tree"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
	"nodegate/units"
)

func TestImageUnits(t *testing.T) {
	good := map[string]string{
		"/usr/local/lib/systemd/system/k3s.service":                          "",
		"/usr/local/bin/nodegate":                                            "ELF",
		"/etc/systemd/system/nodegate-apply.service":                         "[Service]\nExecStart=/usr/local/bin/nodegate apply --stage boot\n",
		"/etc/systemd/system/multi-user.target.wants/nodegate-apply.service": "-> /etc/systemd/system/nodegate-apply.service",
		"/etc/systemd/system/k3s.service.d/10-nodegate.conf":                 "[Service]\nExecStartPre=+/usr/local/bin/nodegate gate\n",
	}
	typo := maps.Clone(good)
	typo["/etc/systemd/system/kublet.service.d/10-nodegate.conf"] = good["/etc/systemd/system/k3s.service.d/10-nodegate.conf"]
	undone := maps.Clone(good)
	undone["/etc/systemd/system/k3s.service.d/09-before.conf"] = "[Service]\nExecStartPre=\n"
	undone["/usr/lib/systemd/system/k3s.service.d/20-vendor.conf"] = "[Service]\nExecStartPre=\nExecStartPre=/sbin/modprobe overlay\n"
	early := maps.Clone(good)
	early["/usr/local/lib/systemd/system/k3s.service"] = "[Service]\nExecStartPre=/usr/bin/docker run -d --name k3s image\nExecStart=/usr/bin/docker logs -f k3s\n"
	packaged := map[string]string{
		"/usr/lib/systemd/system/kubelet.service":                            "",
		"/usr/bin/nodegate":                                                  "ELF",
		"/usr/lib/systemd/system/nodegate-apply.service":                     "[Service]\nExecStart=/usr/bin/nodegate apply --stage boot\n",
		"/etc/systemd/system/multi-user.target.wants/nodegate-apply.service": "-> /usr/lib/systemd/system/nodegate-apply.service",
		"/etc/systemd/system/kubelet.service.d/10-nodegate.conf":             "[Service]\nExecStartPre=+/usr/local/bin/nodegate gate\n",
	}
	masked := map[string]string{
		"/usr/local/bin/nodegate":                                            "ELF",
		"/etc/systemd/system/nodegate-apply.service":                         "-> /dev/null",
		"/etc/systemd/system/multi-user.target.wants/nodegate-apply.service": "-> /etc/systemd/system/nodegate-apply.service",
		"/etc/systemd/system/k3s.service.d/10-nodegate.conf":                 "[Service]\n# ExecStartPre=+/usr/local/bin/nodegate gate\n",
	}
	checkstest.RunOne(t, "image.units", checks.Image, []checkstest.Case{
		{What: "installed", Tree: good, Policy: `gate { unit = "k3s.service" }`, Want: `
pass
want: installed and enabled
got: installed and enabled
evidence: /etc/systemd/system/nodegate-apply.service: present
evidence: /etc/systemd/system/multi-user.target.wants/nodegate-apply.service: enabled
evidence: /etc/systemd/system/k3s.service.d/10-nodegate.conf: present`},
		{What: "installed for another unit", Tree: good, Want: `
fail
want: installed and enabled
got: no drop-in of kubelet.service, no unit kubelet.service
evidence: /etc/systemd/system/nodegate-apply.service: present
evidence: /etc/systemd/system/multi-user.target.wants/nodegate-apply.service: enabled
evidence: /etc/systemd/system/kubelet.service.d/10-nodegate.conf: missing
evidence: kubelet.service: no such unit; units that look like a kubelet: k3s.service
remedy: run ` + "`nodegate install --root ROOT`"},
		{What: "installed by a package, with a drop-in for a missing binary", Tree: packaged, Want: `
fail
want: installed and enabled
got: drop-in of kubelet.service does not run the gate
evidence: /usr/lib/systemd/system/nodegate-apply.service: present
evidence: /etc/systemd/system/multi-user.target.wants/nodegate-apply.service: enabled
evidence: /etc/systemd/system/kubelet.service.d/10-nodegate.conf: no line ExecStartPre=+/usr/bin/nodegate gate
remedy: run ` + "`nodegate install --root ROOT`"},
		{What: "undone by a later drop-in", Tree: undone, Policy: `gate { unit = "k3s.service" }`, Want: `
fail
want: installed and enabled
got: /usr/lib/systemd/system/k3s.service.d/20-vendor.conf:2 removes the gate from k3s.service
evidence: /etc/systemd/system/nodegate-apply.service: present
evidence: /etc/systemd/system/multi-user.target.wants/nodegate-apply.service: enabled
evidence: /etc/systemd/system/k3s.service.d/10-nodegate.conf: present
evidence: /usr/lib/systemd/system/k3s.service.d/20-vendor.conf:2: ExecStartPre=
remedy: remove the line from ROOT/usr/lib/systemd/system/k3s.service.d/20-vendor.conf:2, or rename the file so that it sorts before 10-nodegate.conf`},
		{What: "the unit starts a container before the gate", Tree: early, Policy: `gate { unit = "k3s.service" }`, Want: `
fail
want: installed and enabled
got: /usr/local/lib/systemd/system/k3s.service:2 starts a container in the background before the gate decides
evidence: /etc/systemd/system/nodegate-apply.service: present
evidence: /etc/systemd/system/multi-user.target.wants/nodegate-apply.service: enabled
evidence: /etc/systemd/system/k3s.service.d/10-nodegate.conf: present
evidence: /usr/local/lib/systemd/system/k3s.service:2: ExecStartPre=/usr/bin/docker run -d --name k3s image
remedy: move the command of /usr/local/lib/systemd/system/k3s.service:2 into ExecStart=, or write /etc/systemd/system/k3s.service.d/20-gate-first.conf: [Service], an empty ExecStartPre=, then ExecStartPre=+/usr/local/bin/nodegate gate, then the unit's own ExecStartPre= lines`},
		{What: "a typo in the unit's name", Tree: typo, Policy: `gate { unit = "kublet.service" }`, Want: `
fail
want: installed and enabled
got: no unit kublet.service
evidence: /etc/systemd/system/nodegate-apply.service: present
evidence: /etc/systemd/system/multi-user.target.wants/nodegate-apply.service: enabled
evidence: /etc/systemd/system/kublet.service.d/10-nodegate.conf: present
evidence: kublet.service: no such unit; units that look like a kubelet: k3s.service
remedy: name kubelet's unit in the policy's gate block, or set unit_absent = "allow" there if it is installed later`},
		{What: "the same, installed later", Tree: typo, Policy: "gate {\n unit = \"kublet.service\"\n unit_absent = \"allow\"\n}", Want: `
pass
want: installed and enabled
got: installed and enabled
evidence: /etc/systemd/system/nodegate-apply.service: present
evidence: /etc/systemd/system/multi-user.target.wants/nodegate-apply.service: enabled
evidence: /etc/systemd/system/kublet.service.d/10-nodegate.conf: present`},
		{What: "nothing", Tree: map[string]string{"/etc/hostname": "n"}, Want: `
fail
want: installed and enabled
got: no binary, no nodegate-apply.service, nodegate-apply.service is not enabled, no drop-in of kubelet.service, no unit kubelet.service
evidence: /usr/local/bin/nodegate: missing
evidence: /etc/systemd/system/nodegate-apply.service: missing
evidence: nodegate-apply.service: not enabled
evidence: /etc/systemd/system/kubelet.service.d/10-nodegate.conf: missing
evidence: kubelet.service: no such unit; no unit there looks like a kubelet
remedy: run ` + "`nodegate install --root ROOT`"},
		{What: "masked, and a drop-in without the gate", Tree: masked, Policy: `gate { unit = "k3s.service" }`, Want: `
fail
want: installed and enabled
got: no nodegate-apply.service, nodegate-apply.service is masked, drop-in of k3s.service does not run the gate, no unit k3s.service
evidence: /etc/systemd/system/nodegate-apply.service: missing
evidence: /etc/systemd/system/nodegate-apply.service: masked
evidence: /etc/systemd/system/k3s.service.d/10-nodegate.conf: no line ExecStartPre=+/usr/local/bin/nodegate gate
evidence: k3s.service: no such unit; no unit there looks like a kubelet
remedy: run ` + "`nodegate install --root ROOT`"},
	})
}

// TestImageUnitsKnowsTheInstaller: the problem accepts the files that `nodegate install` writes.
func TestImageUnitsKnowsTheInstaller(t *testing.T) {
	p := checkstest.Load(t, "check \"image.units\" {}\ngate { unit = \"rke2-agent.service\" }")
	for _, brought := range [][]units.File{nil, append(units.ForPackage(), units.File{Path: units.PackagedBinary, Content: []byte("ELF")})} {
		tree := map[string]string{"/etc/hostname": "n", "/usr/lib/systemd/system/rke2-agent.service": ""}
		add := func(files []units.File) {
			for _, f := range files {
				tree[f.Path] = string(f.Content)
				if f.Target != "" {
					tree[f.Path] = "-> " + f.Target
				}
			}
		}
		add(brought)
		below, err := filetree.Open(checkstest.Tree(t, tree).Root)
		require.NoError(t, err)
		prog, err := units.FindProgram(below, []byte("ELF"))
		below.Close()
		require.NoError(t, err)
		installed, err := units.Files(p, nil, prog)
		require.NoError(t, err)
		add(installed)
		r := checks.Inspect(t.Context(), checkstest.Tree(t, tree), checks.Image, catalog.For(p, checks.Image))
		for _, res := range r.Results {
			if res.Name == "image.units" && res.Verdict != verdict.Pass {
				t.Errorf("after an installation with %d files of a package: %s", len(brought), checkstest.Text(res))
			}
		}
	}
}
