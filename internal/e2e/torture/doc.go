// Package torture attacks the real binary and counts the runs that survive. It ends an installation at every possible moment: killed, disk
// full, disk broken, power cut, or with targets that root cannot replace. It also runs a gate with hostile files, file systems, programs,
// console, journal and /run, and every verb with hostile names, endless inputs, and a policy that others may replace.
//
//	make torture          a sample of the points, three minutes
//	LONG=1 make torture   every point, about an hour
//
// It needs root, x86-64, and the packages in apt-packages. It does not change the machine: installations go to
// temporary directories, and the gate runs in its own namespaces.
package torture
