// Package kubelet lists the problems that make kubelet exit or work badly, and checks that an image
// gates kubelet.
package kubelet

import (
	"slices"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/internal/host/service"
)

// Problems lists the problems of kubelet, in the order in which they run.
func Problems() []checks.Problem {
	return []checks.Problem{
		imageUnits(),
		unit(),
		facts(),
		protectKernelDefaults(),
		swap(),
		cgroupVersion(),
		inotifyLimits(),
		runtime(),
		certificate(),
		ports(),
		configuration(),
		flags(),
		values(),
		cgroupV1(),
		rootDir(),
		state(),
		resources(),
		cgroups(),
		memoryManager(),
		policyOptions(),
		kubeconfig(),
		kmsg(),
		cgroupDriver(),
		resolvConf(),
		runtimeNofile(),
		mounts(),
		healthzPort(),
		certificateDates(),
		nodeIP(),
		nodeName(),
		shutdownGrace(),
		api(),
		exit(),
		hostUsers(),
		clockUnsynchronised(),
	}
}

// readConfig returns kubelet's configuration. found is false if there is none, and s is then
// skipped. If the configuration cannot be read it returns an error whose cause is kubelet.config.
func readConfig(h *host.Host, s *checks.State) (k config.Kubelet, found bool, err error) {
	if k, err = h.Kubelet(); err != nil {
		s.Cause = "kubelet.config"
		return k, false, err
	}
	if !k.Found {
		s.Skip = "no kubelet configuration found"
	}
	return k, k.Found, nil
}

// mendsOf returns what the ExecStartPre= commands of kubelet's unit do to files before kubelet starts.
func mendsOf(h *host.Host) (service.Mend, error) {
	u, err := service.Read(h.Files, "kubelet.service")
	if err != nil {
		return service.Mend{}, err
	}
	return u.Mends(h.Files), nil
}

// readConfigAndCommand is readConfig for checks that also need the command line of kubelet's unit.
func readConfigAndCommand(h *host.Host, s *checks.State) (k config.Kubelet, known bool, err error) {
	k, found, err := readConfig(h, s)
	if found && k.Command == nil {
		s.Skip = "kubelet's command line is unknown: " + k.Unknown
	}
	return k, found && k.Command != nil, err
}

// addSeen adds settings to the evidence, each once, and none that is unset.
func addSeen(s *checks.State, settings ...config.KubeletValue) {
	for _, v := range settings {
		if seen := checks.Seen(v.From.Source, v.From.Text); v.From.Source != "" && !slices.Contains(s.Evidence, seen) {
			s.Evidence = append(s.Evidence, seen)
		}
	}
}
