package checks

// linkJudgements: see Judgements.
func linkJudgements() []Judgement {
	return []Judgement{
		bridgeNetfilter(),
		bridgeNetfilterIPv6(),
		mtuChain(),
		enaAllowance(),
	}
}
