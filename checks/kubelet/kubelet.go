// Package kubelet lists what makes kubelet exit or limp, and checks that the image gates it.
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
		kmsg(),
		cgroupDriver(),
		resolvConf(),
		runtimeNofile(),
		mounts(),
		healthzPort(),
		certificateDates(),
		crashLoop(),
		hostUsers(),
		clockUnsynchronised(),
	}
}

// read returns kubelet's configuration. found is false where there is none, and s is skipped then, or where it cannot be
// read, which kubelet.config says too.
func read(h *host.Host, s *checks.State) (k config.Kubelet, found bool, err error) {
	if k, err = h.Kubelet(); err != nil {
		s.Cause = "kubelet.config"
		return k, false, err
	}
	if !k.Found {
		s.Skip = "no configuration of kubelet is here"
	}
	return k, k.Found, nil
}

// readCommand is read for what counts only where the command line of kubelet's unit is known, too.
func readCommand(h *host.Host, s *checks.State) (k config.Kubelet, known bool, err error) {
	k, found, err := read(h, s)
	if found && k.Command == nil {
		s.Skip = "kubelet's command line cannot be known: " + k.Unknown
	}
	return k, found && k.Command != nil, err
}
