package checks

// settingJudgements: see Judgements.
func settingJudgements() []Judgement {
	return []Judgement{
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
