package checks

// trafficProblems: see Problems.
func trafficProblems() []Problem {
	return []Problem{
		beLiberalChanged(),
		conntrackInvalid(),
		conntrackFull(),
		conntrackHeadroom(),
		conntrackHashsize(),
		conntrackOverwritten(),
		conntrackLosses(),
		vxlanChecksum(),
		udpChecksumErrors(),
		iptablesVersion(),
		iptablesBackends(),
		bareDrop(),
		iptablesMark(),
		proxyPostrouting(),
		dockerForwardDrop(),
	}
}
