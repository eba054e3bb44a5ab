// Package image lists the problems of an image whose contents are copied to every machine made from it.
package image

import "nodegate/checks"

// Problems lists the problems of an image.
func Problems() []checks.Problem {
	return []checks.Problem{identity(), bootOrder(), swap(), mounts(), fapolicyd()}
}
