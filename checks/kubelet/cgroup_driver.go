package kubelet

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"regexp"
	"strings"
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
	// A runtime that does not run yet, or is too old for the call, is not a wrong driver.
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
	// From 1.31 on kubelet uses the driver that the runtime reports, whatever its own setting is.
	if !runtime.Told || err == nil && minor < 31 {
		s.Differs("kubelet "+own+", runtime "+runtime.Driver, "")
		switch {
		case strings.Contains(socket, "crio"):
			s.Remedy = `set cgroup_manager = "systemd" in [crio.runtime] of /etc/crio/crio.conf.d/*.conf and cgroupDriver: systemd in kubelet's ` +
				"configuration"
		case own == "systemd":
			s.Remedy = ignoredSetting(ctx, h, socket)
		}
		return s, nil
	}
	return s, err
}

// ignoredSetting returns the remedy if containerd's configuration file sets SystemdCgroup where this containerd does not
// read it, or "". A file without a version has version 1, whose tables have other names (containerd's docs/cri/config.md).
func ignoredSetting(ctx context.Context, h *host.Host, socket string) string {
	const name, restart = "/etc/containerd/config.toml", "then run `systemctl restart containerd`"
	text, err := h.Files.ReadFile(name)
	if err != nil { // another runtime, or a recording
		return ""
	}
	setup, _ := h.Runtimes.RuntimeSetup(ctx, socket)
	handler := cmp.Or(setup.Default, "runc")
	version, table, set := "", "", ""
	lines := regexp.MustCompile(`(?m)^\s*(?:version\s*=\s*(\d)|(\[.*\])|SystemdCgroup\s*=\s*(true)\b)`)
	for _, m := range lines.FindAllStringSubmatch(string(text), -1) {
		version = cmp.Or(m[1], version)
		table = cmp.Or(strings.ReplaceAll(m[2], `"`, "'"), table)
		if m[3] != "" {
			set = table
		}
	}
	right := map[string]string{"2": "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes." + handler + ".options]",
		"3": "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes." + handler + ".options]"}[version]
	switch {
	case set == "":
		return ""
	case version == "":
		return "write `version = 2` as the first line of " + name + ": without it containerd 1 ignores SystemdCgroup there, " + restart
	case right == "":
		return ""
	case set == right:
		return "run `systemctl restart containerd`: SystemdCgroup is set in " + name
	}
	return "move SystemdCgroup = true in " + name + " to the table " + right + " of version " + version + ", " + restart
}
