package proxy

import "strings"

// CheckOf returns the check that reports the same fault of a node as a finding of that name, with the same severity. It
// returns "" if only the audit reports the fault.
func CheckOf(finding string) string {
	switch {
	case strings.HasPrefix(finding, "kubeproxy.masquerade."):
		return "kubeproxy.postrouting"
	case finding == "kubeproxy.forward.invalid-drop":
		return "conntrack.invalid"
	case finding == "kubeproxy.backend.mixed":
		return "iptables.backends"
	case finding == "kubeproxy.firewall.bare-drop":
		return "iptables.bare-drop"
	}
	return ""
}
