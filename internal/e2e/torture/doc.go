// Package torture runs the real binary under attack, and counts what survives: every moment of death of an
// installation (killed, disk full, disk broken, power cut), and a gate whose files, programs and outlets are hostile.
//
//	make torture          a sample, two minutes
//	LONG=1 make torture   every point
//
// It needs root, x86-64, and the packages in apt-packages. It changes nothing of the machine: the installations are in
// directories of their own, the gate runs in namespaces of its own.
package torture
