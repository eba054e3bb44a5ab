package ruleset

// protocolName returns the name of a transport protocol. Programs print its number if they cannot read /etc/protocols, or
// with -n.
func protocolName(protocol string) string {
	switch protocol {
	case "6":
		return "tcp"
	case "17":
		return "udp"
	case "132":
		return "sctp"
	}
	return protocol
}
