// Package writers names the programs and files of a node that set what the
// policy sets, or remove what the CNI made.
package writers

import "nodegate/checks"

// Problems lists the problems of other writers, in the order in which they run.
func Problems() []checks.Problem {
	return []checks.Problem{
		whoWins(),
		ipForwardWriters(),
		networkdForeignRoutes(),
		networkdDamage(),
		networkManagerLinks(),
		nmCloudSetup(),
		firewalld(),
	}
}
