package checks

// imageJudgements: see Judgements.
func imageJudgements() []Judgement {
	return []Judgement{}
}
