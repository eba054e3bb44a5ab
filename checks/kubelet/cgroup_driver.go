package kubelet

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"syscall"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// cgroupDriver: kubelet and its runtime must put Pods into the same tree of cgroups.
func cgroupDriver() checks.Problem {
	return checks.Problem{
		Name: "kubelet.cgroup-driver", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn, Concurrent: true,
		Detects: "kubelet and its container runtime use different drivers of cgroups.",
		Symptom: "Pods restart for no reason, or do not start: \"expected cgroupsPath to be of format slice:prefix:name for systemd cgroups\"; " +
			"limits are not enforced.",
		How: "The runtime is asked over CRI: RuntimeConfig, which kubelet from 1.31 on asks and obeys too, else Status, in which containerd " +
			"puts its configuration as it is in effect. cgroupDriver of kubelet's configuration is cgroupfs by default.",
		Remedy: "set SystemdCgroup = true in containerd's configuration, at the path of its version, and cgroupDriver: systemd in kubelet's",
		TradeOff: "Pods that run while the driver is changed are left in the old tree: drain the node first. In version 3 of containerd's " +
			"configuration the path is plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options.",
		Ref:     "https://kubernetes.io/docs/setup/production-environment/container-runtimes/#cgroup-drivers",
		Inspect: inspectCgroupDriver,
	}
}

func inspectCgroupDriver(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("the runtime's driver")
	k, found, err := read(h, &s)
	if !found || h.Runtimes == nil {
		s.Skip = cmp.Or(s.Skip, "no runtime can be asked here")
		return s, err
	}
	setting := k.Values["cgroupDriver"]
	own := cmp.Or(setting.Value, "cgroupfs")
	socket := socketOf(cmp.Or(k.Values["containerRuntimeEndpoint"].Value, containerdSocket))
	runtime, err := h.Runtimes.CgroupDriver(ctx, socket)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, errors.ErrUnsupported):
		s.Skip = "the runtime at " + socket + " does not say its driver"
		return s, nil
	case err != nil:
		return s, err
	}
	s.Evidence = []checks.Evidence{checks.Seen(socket, runtime.Driver)}
	if setting.Value != "" {
		s.Evidence = append(s.Evidence, checks.Seen(setting.From.Source, setting.From.Text))
	}
	if own == runtime.Driver {
		return s, nil
	}
	minor, err := h.KubeletMinor(ctx)
	if !runtime.Told || err == nil && minor < 31 {
		s.Differs("kubelet "+own+", runtime "+runtime.Driver, "")
		return s, nil
	}
	return s, err
}
