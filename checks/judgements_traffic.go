package checks

// trafficJudgements: see Judgements.
func trafficJudgements() []Judgement {
	return []Judgement{}
}
