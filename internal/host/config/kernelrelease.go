package config

import (
	"fmt"
	"strconv"
	"strings"
)

// KernelRelease is the output of `uname -r`, split into its parts.
type KernelRelease struct {
	Version [3]int // 5.4.0 of 5.4.0-32-generic
	ABI     int    // 32; 0 where there is none
	Rest    string // what follows the version: "-32-generic"
}

// ParseKernelRelease splits a release. A missing third number is 0.
func ParseKernelRelease(release string) (KernelRelease, error) {
	var k KernelRelease
	end := strings.IndexFunc(release, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 0 {
		end = len(release)
	}
	k.Rest = release[end:]
	parts := strings.Split(strings.TrimRight(release[:end], "."), ".")
	if len(parts) < 2 {
		return k, fmt.Errorf("%q is no kernel release", release)
	}
	for i, p := range parts[:min(3, len(parts))] {
		n, err := strconv.Atoi(p)
		if err != nil {
			return k, fmt.Errorf("%q is no kernel release: %w", release, err)
		}
		k.Version[i] = n
	}
	abi, _, _ := strings.Cut(strings.TrimPrefix(k.Rest, "-"), "-")
	k.ABI, _ = strconv.Atoi(abi)
	return k, nil
}

// UbuntuMain reports whether a release of Ubuntu counts as its main kernel does;
// those for clouds (5.4.0-1015-aws) have numbers of their own.
func (k KernelRelease) UbuntuMain() bool {
	return k.ABI > 0 && (strings.HasSuffix(k.Rest, "-generic") || strings.HasSuffix(k.Rest, "-lowlatency"))
}
