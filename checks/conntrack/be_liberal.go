package conntrack

import (
	"errors"
	"io/fs"

	"nodegate/checks"
	"nodegate/internal/host"
)

// readBeLiberal reports whether conntrack accepts TCP packets outside the window,
// by the parameter's present name or the one of old kernels. Without nf_conntrack
// neither exists: fs.ErrNotExist.
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

// beLiberalSysctl is the cause of both problems with be_liberal, where the policy sets it.
const beLiberalSysctl = "sysctl.net.netfilter.nf_conntrack_tcp_be_liberal"

// unread returns the state where conntrack's parameters cannot be read: without nf_conntrack the problem does not apply.
func unread(s checks.State, err error) (checks.State, error) {
	if errors.Is(err, fs.ErrNotExist) {
		s.Skip = "nf_conntrack is not loaded: nothing is tracked"
		return s, nil
	}
	return s, err
}
