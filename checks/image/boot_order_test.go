package image_test

import (
	"errors"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/boot"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

func TestBootOrder(t *testing.T) {
	image := func(cycles ...boot.Cycle) *hosttest.Machine {
		m := checkstest.Node(nil, nil)
		m.Boot = &boot.Boot{Cycles: cycles}
		return m
	}
	checkstest.RunOne(t, "image.boot-order", checks.Image, []checkstest.Case{
		{What: "no cycle", Node: image(), Want: `
pass
want: no ordering cycle
got: no ordering cycle`},
		{What: "no systemd here", Node: checkstest.Node(nil, nil), Want: `
unknown
error: no systemd can be asked about the boot: systemd is not installed here: unsupported operation`},
		{What: "the image's own", Node: image(boot.Cycle{"a.service", "b.service"}), Want: `
warn
want: no ordering cycle
got: an ordering cycle: a.service after b.service after a.service
evidence: systemd --test: a.service after b.service after a.service
remedy: remove After= or Before= from one of the named units with a drop-in`},
		{What: "kubelet in one", Node: image(boot.Cycle{"a.service", "b.service"}, boot.Cycle{"kubelet.service", "var-lib-kubelet.mount"}), Want: `
fail
want: no ordering cycle
got: 2 ordering cycles, the first: kubelet.service after var-lib-kubelet.mount after kubelet.service
evidence: systemd --test: kubelet.service after var-lib-kubelet.mount after kubelet.service
evidence: systemd --test: a.service after b.service after a.service
remedy: remove x-systemd.requires=, x-systemd.after= or _netdev from the line of var-lib-kubelet.mount in /etc/fstab, or remove After= or Before= from another named unit with a drop-in`},
		{What: "nodegate after a mount", Node: image(boot.Cycle{"nodegate-apply.service", "local-fs.target", "data.mount"}), Want: `
fail
want: no ordering cycle
got: an ordering cycle: nodegate-apply.service after local-fs.target after data.mount after nodegate-apply.service
evidence: systemd --test: nodegate-apply.service after local-fs.target after data.mount after nodegate-apply.service
remedy: remove x-systemd.requires=, x-systemd.after= or _netdev from the line of data.mount in /etc/fstab, or remove After= or Before= from another named unit with a drop-in`},
	})
}

// TestBootOrderUnknown: an environment in which systemd cannot run is no pass, and no fault of the image.
func TestBootOrderUnknown(t *testing.T) {
	m := checkstest.Node(nil, nil)
	m.Refuse = map[string]error{"boot": errors.New("exit status 1")}
	r := checkstest.On(t.Context(), t, m.Host(), checks.Image, "image.boot-order", "")
	if !strings.HasPrefix(r.State.Remedy, "install systemd in the image, and here to run it") {
		t.Error(r.State.Remedy)
	}
	if r.Verdict != verdict.Unknown || r.Metadata.Severity != policy.Warn || r.Err == nil {
		t.Errorf("%s, severity %s: %v", r.Verdict, r.Metadata.Severity, r.Err)
	}
}
