// Package fleet merges the reports of many nodes into one table and finds the
// nodes that are not as the others. It reads what `nodegate check --format json`
// wrote, trusts none of it, and touches no machine.
package fleet
