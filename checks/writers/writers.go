// Package writers lists the problems of other programs and files that set the parameters of the
// policy, or remove the CNI's routes and rules.
package writers

import "nodegate/checks"

// Problems lists the problems of other writers, in the order in which they run.
func Problems() []checks.Problem {
	return []checks.Problem{
		whoWins(),
		ipForwardWriters(),
		networkdForeignRoutes(),
		networkdDamage(),
		networkdCNILinks(),
		networkManagerLinks(),
		nmCloudSetup(),
		firewalld(),
	}
}
