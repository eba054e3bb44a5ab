package checks

// linkProblems: see Problems.
func linkProblems() []Problem {
	return []Problem{
		bridgeNetfilter(),
		bridgeNetfilterIPv6(),
		mtuChain(),
		enaAllowance(),
	}
}
