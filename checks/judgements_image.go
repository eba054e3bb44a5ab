package checks

// imageProblems: see Problems.
func imageProblems() []Problem {
	return []Problem{
		imageUnits(),
		whoWins(),
		macAddressPolicy(),
		networkdForeignRoutes(),
		networkManagerLinks(),
		nmCloudSetup(),
		firewalld(),
	}
}
