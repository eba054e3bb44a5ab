// Package kubelet lists the problems that make kubelet exit or work badly, and checks that an image gates kubelet.
package kubelet

import (
	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
)

// Problems lists the problems of kubelet, in the order in which they run.
func Problems() []checks.Problem {
	return []checks.Problem{
		imageUnits(),
		unit(),
		facts(),
		protectKernelDefaults(),
		swap(),
		inotifyLimits(),
		runtime(),
		ports(),
		configuration(),
		values(),
		cgroupV1(),
		rootDir(),
		cgroupDriver(),
		resolvConf(),
		runtimeNofile(),
		mounts(),
		healthzPort(),
		certificateDates(),
		nodeIP(),
		nodeName(),
		api(),
		exit(),
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

// readConfigAndCommand is readConfig for checks that also need the command line of kubelet's unit.
func readConfigAndCommand(h *host.Host, s *checks.State) (k config.Kubelet, known bool, err error) {
	k, found, err := readConfig(h, s)
	return k, found && isKnown(k, s), err
}

// isKnown reports whether all options of kubelet are known. If not, s is skipped.
func isKnown(k config.Kubelet, s *checks.State) bool {
	if k.Command == nil && k.Holder == "" {
		s.Skip = "kubelet's command line is unknown: " + k.Unknown
	}
	return s.Skip == ""
}
