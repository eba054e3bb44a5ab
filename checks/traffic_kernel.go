package checks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// kernelRelease is what uname -r says, taken apart.
type kernelRelease struct {
	version [3]int // 5.4.0 of 5.4.0-32-generic
	abi     int    // 32; 0 where there is none
	rest    string // what follows the version: "-32-generic"
}

// parseKernelRelease takes a release apart. A missing third number is 0.
func parseKernelRelease(release string) (kernelRelease, error) {
	var k kernelRelease
	end := strings.IndexFunc(release, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 0 {
		end = len(release)
	}
	k.rest = release[end:]
	parts := strings.Split(strings.TrimRight(release[:end], "."), ".")
	if len(parts) < 2 {
		return k, fmt.Errorf("%q is no kernel release", release)
	}
	for i, p := range parts[:min(3, len(parts))] {
		n, err := strconv.Atoi(p)
		if err != nil {
			return k, fmt.Errorf("%q is no kernel release: %w", release, err)
		}
		k.version[i] = n
	}
	abi, _, _ := strings.Cut(strings.TrimPrefix(k.rest, "-"), "-")
	k.abi, _ = strconv.Atoi(abi)
	return k, nil
}

// ubuntuMain tells whether a release of Ubuntu counts as its main kernel does;
// those for clouds (5.4.0-1015-aws) have numbers of their own.
func (k kernelRelease) ubuntuMain() bool {
	return k.abi > 0 && (strings.HasSuffix(k.rest, "-generic") || strings.HasSuffix(k.rest, "-lowlatency"))
}

// tristate is an answer that may be missing.
type tristate int

const (
	unknown tristate = iota
	no
	yes
)

// natChecksumFix tells whether a kernel has "netfilter: nat: never update the
// UDP checksum when it's 0", and what that rests on. A version alone does not
// tell: distributions carry the fix back, and those that freeze the version do
// not show it there.
func natChecksumFix(release, osID string) (tristate, string) {
	k, err := parseKernelRelease(release)
	if err != nil {
		return unknown, err.Error()
	}
	if slices.Compare(k.version[:2], []int{5, 7}) >= 0 {
		return yes, "fixed since 5.7"
	}
	series := [2]int{k.version[0], k.version[1]}
	if osID == "ubuntu" && k.version[2] == 0 && k.ubuntuMain() {
		if since, ok := map[[2]int]int{{4, 15}: 107, {5, 4}: 32}[series]; ok {
			if k.abi >= since {
				return yes, fmt.Sprintf("Ubuntu has the fix since %d.%d.0-%d", series[0], series[1], since)
			}
			return no, fmt.Sprintf("Ubuntu has the fix only since %d.%d.0-%d", series[0], series[1], since)
		}
	}
	switch {
	case strings.Contains(k.rest, "uek"):
		return unknown, "it is not known whether Oracle's own kernel before 5.7 has the fix"
	case strings.Contains(k.rest, ".el8"):
		return yes, "Red Hat carried the fix back to 8"
	case strings.Contains(k.rest, ".el7"):
		return unknown, "it is not known whether Red Hat 7 has the fix"
	}
	switch osID {
	case "ubuntu", "debian", "amzn":
		return unknown, "it is not known which kernels of " + osID + " before 5.7 have the fix"
	}
	if k.version[2] == 0 {
		return unknown, "a release that ends in .0 does not show what was carried back"
	}
	since, ok := map[[2]int]int{{5, 4}: 41, {4, 19}: 123, {4, 14}: 181}[series]
	switch {
	case !ok:
		return unknown, fmt.Sprintf("it is not known whether %d.%d was fixed", series[0], series[1])
	case k.version[2] >= since:
		return yes, fmt.Sprintf("fixed since %d.%d.%d", series[0], series[1], since)
	}
	return no, fmt.Sprintf("fixed only since %d.%d.%d", series[0], series[1], since)
}

// markRegression tells whether a kernel is one of those whose ip6tables lost
// the MARK target. Ubuntu's kernels for clouds are numbered apart: not known.
func markRegression(release, osID string) (tristate, string) {
	k, err := parseKernelRelease(release)
	if err != nil {
		return unknown, err.Error()
	}
	lost := map[[3]int][]int{{6, 8, 0}: {56, 57}, {5, 15, 0}: {127}}[k.version]
	switch {
	case slices.Contains([][3]int{{6, 6, 57}, {6, 6, 58}, {6, 11, 4}, {6, 11, 5}}, k.version):
		return yes, "stable kernels 6.6.57, 6.6.58, 6.11.4 and 6.11.5 lost it"
	case osID != "ubuntu" || lost == nil:
		return no, "not one of those that lost it"
	case !k.ubuntuMain():
		return unknown, "Ubuntu numbers this kernel apart from 5.15.0-127, 6.8.0-56 and 6.8.0-57, which lost it"
	case slices.Contains(lost, k.abi):
		return yes, "Ubuntu's 5.15.0-127, 6.8.0-56 and 6.8.0-57 lost it"
	}
	return no, "not one of those that lost it"
}
