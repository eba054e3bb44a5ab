package links

import (
	"nodegate/checks"
	"nodegate/policy"
)

// tcpChecksumErrors detects TCP packets with wrong checksums. Only the receiver notices a link that computes them wrongly.
func tcpChecksumErrors() checks.Problem {
	return checks.Problem{
		Name: "tcp.checksum-errors", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "TCP packets with a wrong checksum are arriving.",
		Symptom: "Some connections hang, often after the sender's tunnel link was recreated with its offload on; both nodes stay Ready.",
		How:     "InCsumErrors of Tcp in /proc/net/snmp rises between two reads 100 ms apart. If it is 0, there is no second read.",
		Remedy: "on the sending node, run `ethtool -K LINK tx-checksum-ip-generic off` for the tunnel's link; " +
			"a link block in the policy keeps it off",
		TradeOff: "The CPU computes the checksums.",
		Ref:      "https://github.com/flannel-io/flannel/issues/1279",
		Inspect:  inspectChecksumErrors("Tcp", "", ""),
	}
}
