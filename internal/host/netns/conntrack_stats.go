package netns

import (
	"fmt"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ctGetStatsCPU is IPCTNL_MSG_CT_GET_STATS_CPU: one message per CPU.
const ctGetStatsCPU = unix.NFNL_SUBSYS_CTNETLINK<<8 | 4

type ctStat struct {
	attribute uint16
	name      string
}

// ctStats are the attributes CTA_STATS_* of linux/netfilter/nfnetlink_conntrack.h that kernels
// still fill in, with their names in /proc/net/stat/nf_conntrack.
func ctStats() []ctStat {
	return []ctStat{
		{14, "clashres"}, {2, "found"}, {4, "invalid"}, {15, "chainlength"}, {8, "insert"}, {9, "insert_failed"}, {10, "drop"},
		{11, "early_drop"}, {12, "icmp_error"}, {13, "search_restart"},
	}
}

// ConntrackStats returns conntrack's counters in the form of /proc/net/stat/nf_conntrack, for
// kernels built without that file: a line of names, and a line of hexadecimal numbers for every
// CPU. It reads the calling thread's namespace. The query loads nf_conntrack_netlink, and with it
// nf_conntrack. The error is fs.ErrPermission if the counters may not be read, and
// errors.ErrUnsupported if the kernel does not have them.
func ConntrackStats() ([]byte, error) {
	request := nl.NewNetlinkRequest(ctGetStatsCPU, unix.NLM_F_DUMP)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	messages, err := request.Execute(unix.NETLINK_NETFILTER, ctGetStatsCPU)
	if err != nil {
		return nil, conntrackErr("counting", Tuple{}, err)
	}
	var text strings.Builder
	for _, s := range ctStats() {
		text.WriteString(s.name + " ")
	}
	for _, m := range messages {
		line, err := decodeStats(m)
		if err != nil {
			return nil, err
		}
		text.WriteString("\n" + line)
	}
	return []byte(text.String() + "\n"), nil
}

// decodeStats returns the numbers of one CPU. An attribute that this kernel lacks is 0.
func decodeStats(b []byte) (line string, err error) {
	if len(b) < nfGenMsg {
		return "", fmt.Errorf("reading conntrack's counters: %d bytes are too short for a message", len(b))
	}
	r := flowReader{}
	a := r.split(b[nfGenMsg:])
	for _, s := range ctStats() {
		n := uint64(0)
		if raw := a[s.attribute]; len(raw) == 4 {
			n = r.number(raw, 4)
		}
		line += fmt.Sprintf("%08x ", n)
	}
	return line, r.err
}
