package checks_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/units"
)

func TestImageUnits(t *testing.T) {
	good := map[string]string{
		"/usr/local/bin/nodegate":                                            "ELF",
		"/etc/systemd/system/nodegate-apply.service":                         "[Service]\nExecStart=/usr/local/bin/nodegate apply --stage boot\n",
		"/etc/systemd/system/multi-user.target.wants/nodegate-apply.service": "-> /etc/systemd/system/nodegate-apply.service",
		"/etc/systemd/system/k3s.service.d/10-nodegate.conf":                 "[Service]\nExecStartPre=+/usr/local/bin/nodegate gate\n",
	}
	packaged := map[string]string{
		"/usr/bin/nodegate": "ELF",
		"/usr/lib/systemd/system/nodegate-apply.service":                     "[Service]\nExecStart=/usr/bin/nodegate apply --stage boot\n",
		"/etc/systemd/system/multi-user.target.wants/nodegate-apply.service": "-> /usr/lib/systemd/system/nodegate-apply.service",
		"/etc/systemd/system/kubelet.service.d/10-nodegate.conf":             "[Service]\nExecStartPre=+/usr/local/bin/nodegate gate\n",
	}
	masked := map[string]string{
		"/usr/local/bin/nodegate":                                            "ELF",
		"/etc/systemd/system/nodegate-apply.service":                         "-> /dev/null",
		"/etc/systemd/system/multi-user.target.wants/nodegate-apply.service": "-> /etc/systemd/system/nodegate-apply.service",
		"/etc/systemd/system/k3s.service.d/10-nodegate.conf":                 "[Service]\n",
	}
	judgeSettings(t, "image.units", checks.Image, []settingCase{
		{name: "installed", tree: good, policy: `gate { unit = "k3s.service" }`, want: `pass
want: installed and enabled
got: installed and enabled
evidence: /etc/systemd/system/nodegate-apply.service: present
evidence: /etc/systemd/system/multi-user.target.wants/nodegate-apply.service: enabled`},
		{name: "installed for another unit", tree: good, want: `fail
want: installed and enabled
got: no drop-in of kubelet.service
evidence: /etc/systemd/system/nodegate-apply.service: present
evidence: /etc/systemd/system/multi-user.target.wants/nodegate-apply.service: enabled
remedy: run: nodegate install --root ROOT`},
		{name: "a package's, held by a binary that is gone", tree: packaged, want: `fail
want: installed and enabled
got: drop-in of kubelet.service does not run the gate
evidence: /usr/lib/systemd/system/nodegate-apply.service: present
evidence: /etc/systemd/system/multi-user.target.wants/nodegate-apply.service: enabled
remedy: run: nodegate install --root ROOT`},
		{name: "nothing", tree: map[string]string{"/etc/hostname": "n"}, want: `fail
want: installed and enabled
got: no binary, no nodegate-apply.service, nodegate-apply.service is not enabled, no drop-in of kubelet.service
evidence: /usr/local/bin/nodegate: missing
evidence: /etc/systemd/system/nodegate-apply.service: missing
remedy: run: nodegate install --root ROOT`},
		{name: "masked, and a drop-in that was emptied", tree: masked, policy: `gate { unit = "k3s.service" }`, want: `fail
want: installed and enabled
got: no nodegate-apply.service, nodegate-apply.service is masked, drop-in of k3s.service does not run the gate
evidence: /etc/systemd/system/nodegate-apply.service: missing
evidence: /etc/systemd/system/nodegate-apply.service: masked
remedy: run: nodegate install --root ROOT`},
	})
}

const defaultLink = "[Match]\nOriginalName=*\n\n[Link]\nNamePolicy=keep kernel database onboard slot path\nMACAddressPolicy=persistent\n"

// TestImageUnitsKnowsTheInstaller: what `nodegate install` writes is what the
// judgement looks for.
func TestImageUnitsKnowsTheInstaller(t *testing.T) {
	p := load(t, "check \"image.units\" {}\ngate { unit = \"rke2-agent.service\" }")
	for _, brought := range [][]units.File{nil, append(units.ForPackage(), units.File{Path: units.PackagedBinary, Content: []byte("ELF")})} {
		tree := map[string]string{"/etc/hostname": "n"}
		add := func(files []units.File) {
			for _, f := range files {
				tree[f.Path] = string(f.Content)
				if f.Target != "" {
					tree[f.Path] = "-> " + f.Target
				}
			}
		}
		add(brought)
		below, err := host.OpenTree(treeOf(t, tree).Root)
		if err != nil {
			t.Fatal(err)
		}
		prog, err := units.FindProgram(below, []byte("ELF"))
		below.Close()
		if err != nil {
			t.Fatal(err)
		}
		installed, err := units.Files(p, nil, prog)
		if err != nil {
			t.Fatal(err)
		}
		add(installed)
		r := checks.Inspect(t.Context(), treeOf(t, tree), checks.Image, checks.For(p, checks.Image))
		for _, res := range r.Results {
			if res.Name == "image.units" && res.Verdict != checks.Pass {
				t.Errorf("after an installation with %d files of a package: %s", len(brought), said(res))
			}
		}
	}
}
