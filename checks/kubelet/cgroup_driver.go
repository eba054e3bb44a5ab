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

// cgroupDriver: kubelet and its runtime must use the same cgroup tree for Pods.
func cgroupDriver() checks.Problem {
	return checks.Problem{
		Name: "kubelet.cgroup-driver", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn, Concurrent: true,
		Detects: "kubelet and its container runtime use different cgroup drivers.",
		Symptom: "Pods restart without a visible reason or do not start: \"expected cgroupsPath to be of format " +
			"slice:prefix:name for systemd cgroups\". Limits are not enforced.",
		How: "Queries the runtime over CRI: RuntimeConfig, whose answer kubelet 1.31 and later adopts; otherwise " +
			"Status, which contains containerd's effective configuration. cgroupDriver in kubelet's configuration defaults to cgroupfs.",
		Remedy: "set SystemdCgroup = true in containerd's configuration (the path depends on its version) and " +
			"cgroupDriver: systemd in kubelet's",
		TradeOff: "Pods that run while the driver changes stay in the old cgroup tree: drain the node first. In " +
			"version 3 of containerd's configuration the path is plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options.",
		Ref:     "https://kubernetes.io/docs/setup/production-environment/container-runtimes/#cgroup-drivers",
		Inspect: inspectCgroupDriver,
	}
}

func inspectCgroupDriver(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("the runtime's driver")
	k, found, err := readConfig(h, &s)
	if !found || h.Runtimes == nil {
		s.Skip = cmp.Or(s.Skip, "no container runtime to query here")
		return s, err
	}
	setting := k.Values["cgroupDriver"]
	own := cmp.Or(setting.Value, "cgroupfs")
	socket := host.SocketPath(cmp.Or(k.Values["containerRuntimeEndpoint"].Value, host.ContainerdSocket))
	runtime, err := h.Runtimes.CgroupDriver(ctx, socket)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, errors.ErrUnsupported):
		s.Skip = "the runtime at " + socket + " does not report its driver"
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
