package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// KernelRelease is what uname -r prints, taken apart.
type KernelRelease struct {
	Text    string // 5.4.0-32-generic
	Numbers string // 5.4.0, as long as it is in Text
	Version [3]int // 5, 4, 0; a missing third number is 0
	ABI     int    // 32, 0 where there is none
	Rest    string // what follows the version: -32-generic
}

// KernelRelease returns the running kernel's release.
func (h *Host) KernelRelease() (KernelRelease, error) {
	text, err := h.Kernel.Release()
	if err != nil {
		return KernelRelease{}, err
	}
	return ParseKernelRelease(text)
}

// ParseKernelRelease takes a release apart.
func ParseKernelRelease(text string) (KernelRelease, error) {
	k := KernelRelease{Text: text, Numbers: leadingNumbers(text)}
	k.Rest = strings.TrimLeft(text[len(k.Numbers):], ".")
	parts := strings.Split(k.Numbers, ".")
	if len(parts) < 2 {
		return k, fmt.Errorf("%q is no kernel release", text)
	}
	for i, p := range parts[:min(3, len(parts))] {
		n, err := strconv.Atoi(p)
		if err != nil {
			return k, fmt.Errorf("%q is no kernel release: %w", text, err)
		}
		k.Version[i] = n
	}
	abi, _, _ := strings.Cut(strings.TrimPrefix(k.Rest, "-"), "-")
	k.ABI, _ = strconv.Atoi(abi)
	return k, nil
}

// AtLeast reports whether the kernel is of this version or a later one. A
// distribution's older kernel may contain what a later one brought.
func (k KernelRelease) AtLeast(major, minor int) bool {
	return slices.Compare(k.Version[:2], []int{major, minor}) >= 0
}

// leadingNumbers returns the numbers that a version begins with: 6.1.0 of
// 6.1.0-28-amd64.
func leadingNumbers(version string) string {
	rest := strings.TrimLeft(version, "0123456789.")
	return strings.TrimRight(version[:len(version)-len(rest)], ".")
}
