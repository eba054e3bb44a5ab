// Package fleet merges the reports of many nodes into one table and finds the
// nodes that differ from the rest. It does not trust any text in a report, and
// does not access any machine.
package fleet
