package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// KernelRelease is the output of `uname -r`, split into its parts.
type KernelRelease struct {
	Text    string // 5.4.0-32-generic
	Numbers string // 5.4.0
	Version [3]int // 5, 4, 0; a missing third number is 0
	ABI     int    // 32; 0 if missing
	Rest    string // the text after the version: "-32-generic"
}

// ParseKernelRelease splits a release.
func ParseKernelRelease(release string) (KernelRelease, error) {
	k := KernelRelease{Text: release, Numbers: LeadingNumbers(release)}
	k.Rest = strings.TrimLeft(release[len(k.Numbers):], ".")
	parts := strings.Split(k.Numbers, ".")
	if len(parts) < 2 {
		return k, fmt.Errorf("%q is not a kernel release", release)
	}
	for i, p := range parts[:min(3, len(parts))] {
		n, err := strconv.Atoi(p)
		if err != nil {
			return k, fmt.Errorf("%q is not a kernel release: %w", release, err)
		}
		k.Version[i] = n
	}
	abi, _, _ := strings.Cut(strings.TrimPrefix(k.Rest, "-"), "-")
	k.ABI, _ = strconv.Atoi(abi)
	return k, nil
}

// LeadingNumbers returns the numbers at the start of a version: 6.1.0 for 6.1.0-28-amd64.
func LeadingNumbers(version string) string {
	rest := strings.TrimLeft(version, "0123456789.")
	return strings.TrimRight(version[:len(version)-len(rest)], ".")
}

// AtLeast reports whether the kernel has this version or a later one. A distribution may have
// backported a fix to an older one.
func (k KernelRelease) AtLeast(major, minor int) bool {
	return slices.Compare(k.Version[:2], []int{major, minor}) >= 0
}

// UbuntuMain reports whether a release has the ABI numbers of Ubuntu's main kernel. Kernels for
// clouds (5.4.0-1015-aws) have their own numbers.
func (k KernelRelease) UbuntuMain() bool {
	return k.ABI > 0 && (strings.HasSuffix(k.Rest, "-generic") || strings.HasSuffix(k.Rest, "-lowlatency"))
}
