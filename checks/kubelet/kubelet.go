// Package kubelet lists what makes kubelet exit or limp, and checks that the image gates it.
package kubelet

import "nodegate/checks"

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
		cgroupV1(),
		rootDir(),
		kmsg(),
		cgroupDriver(),
		resolvConf(),
		runtimeNofile(),
		mounts(),
		healthzPort(),
	}
}
