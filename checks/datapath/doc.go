// Package datapath sends real packets: through a scratch bridge, to prove that a Service reply between
// two Pods on one node comes back translated (Bridge), and to a Service address, to find the endpoints
// that fail (Service).
//
// The package does not print and does not change the host's settings, and nothing that it creates
// outlives its call.
package datapath
