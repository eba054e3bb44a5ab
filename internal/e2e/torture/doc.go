// Package torture attacks the real binary and counts the runs that survive. It ends an installation at every
// possible moment: killed, disk full, disk broken, power cut. It also runs a gate with hostile files, programs,
// console, journal and /run.
//
//	make torture          a sample of the points, two minutes
//	LONG=1 make torture   every point, about an hour
//
// It needs root, x86-64, and the packages in apt-packages. It does not change the machine: installations go to
// temporary directories, and the gate runs in its own namespaces.
package torture
