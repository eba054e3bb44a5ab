// Package datapath sends real packets: through a scratch bridge, to prove that
// a Service reply between two pods of one node comes back translated (Bridge),
// and to a Service address, to learn which of its endpoints fail (Service).
//
// Nothing here prints, changes a setting of the host, or outlives its call:
// what a killed probe leaves begins with Prefix, and Clean and the next probe
// remove it.
package datapath
