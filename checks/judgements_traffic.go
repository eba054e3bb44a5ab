package checks

// trafficJudgements: see Judgements.
func trafficJudgements() []Judgement {
	return []Judgement{
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
