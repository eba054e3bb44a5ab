// Package image lists what an image must not bring to every machine that is made from it.
package image

import "nodegate/checks"

// Problems lists the problems of an image as such.
func Problems() []checks.Problem { return []checks.Problem{identity()} }
