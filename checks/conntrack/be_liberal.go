package conntrack

import (
	"errors"
	"io/fs"

	"nodegate/checks"
	"nodegate/internal/host"
)

// readBeLiberal reports whether conntrack accepts TCP packets outside the window. It reads the parameter by its current
// name, or by its name in old kernels. Without nf_conntrack neither exists, and it returns fs.ErrNotExist.
func readBeLiberal(h *host.Host) (bool, checks.Evidence, error) {
	var missing error
	for _, key := range []string{"net/netfilter/nf_conntrack_tcp_be_liberal", "net/ipv4/netfilter/ip_conntrack_tcp_be_liberal"} {
		value, err := h.ReadSysctl(key)
		if errors.Is(err, fs.ErrNotExist) {
			missing = err
			continue
		}
		return value != "0", checks.Seen("/proc/sys/"+key, value), err
	}
	return false, checks.Evidence{}, missing
}

// beLiberalSysctl is the cause of both be_liberal problems if the policy sets it.
const beLiberalSysctl = "sysctl.net.netfilter.nf_conntrack_tcp_be_liberal"

// skipIfNotLoaded handles an error of reading conntrack's parameters: without nf_conntrack, the problem does not apply.
func skipIfNotLoaded(s checks.State, err error) (checks.State, error) {
	if errors.Is(err, fs.ErrNotExist) {
		s.Skip = "nf_conntrack is not loaded: nothing is tracked"
		return s, nil
	}
	return s, err
}
