package checks

// imageJudgements: see Judgements.
func imageJudgements() []Judgement {
	return []Judgement{
		imageUnits(),
		whoWins(),
		macAddressPolicy(),
		networkdForeignRoutes(),
		networkManagerLinks(),
		nmCloudSetup(),
		firewalld(),
	}
}
