package checks

// settingProblems: see Problems.
func settingProblems() []Problem {
	return []Problem{
		ipForwardWriters(),
		rpFilter(),
		protectKernelDefaults(),
		swap(),
		cgroupVersion(),
		nodePortOverlap(),
		inotifyLimits(),
		ipvsSettings(),
		neighbourTable(),
		routeLocalnetMartian(),
	}
}
