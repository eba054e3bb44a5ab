// Package fleet merges the reports of many nodes into one table and finds the
// nodes that differ from the rest. It trusts no text of a report, and touches no
// machine.
package fleet
