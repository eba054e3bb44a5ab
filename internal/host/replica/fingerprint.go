package replica

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Fingerprint differs if what other programs than kube-proxy wrote differs: rules, sets, routes, routing rules, addresses, policies of
// IPsec, filters of tc, links that are not a single Pod's, and their sysctls. It may also differ if they wrote the same again.
func (c *Capture) Fingerprint() string {
	h := sha256.New()
	pod := map[int]bool{}
	for _, l := range c.Links {
		if pod[l.Index] = l.Kind == "veth" && !c.isUplink(&l); !pod[l.Index] {
			fmt.Fprintln(h, l.Name, l.Kind, l.MTU, l.Up, l.Master)
			for _, key := range linkSysctls {
				fmt.Fprintln(h, c.Sysctls[fmt.Sprintf(key, l.Name)])
			}
		}
	}
	for _, key := range slices.Concat(sysctls, []string{"net/ipv4/conf/all/rp_filter", "net/ipv4/conf/all/forwarding"}) {
		fmt.Fprintln(h, key, c.Sysctls[key])
	}
	fmt.Fprintln(h, c.Own(), c.Queues)
	for _, p := range c.Parts {
		const cached = 12 // RTA_CACHEINFO
		switch {
		case p.Own:
		case p.Kind == PartRoute && !pod[linkOfRoute(p.Message)]:
			lasting := filter(p.Message[unix.SizeofRtMsg:], func(kind int) bool { return kind != cached })
			fmt.Fprintf(h, "%x %x\n", p.Message[:unix.SizeofRtMsg], lasting)
		case p.Kind != PartRoute:
			fmt.Fprintln(h, p.Kind, p.Legacy, p.Family, p.Table, p.Chain, p.Handle, p.Priority, p.To, p.Entries)
		}
	}
	for i, m := range c.Sets {
		if c.Subsystems[i] == unix.NFNL_SUBSYS_IPSET {
			fmt.Fprintf(h, "%x\n", m.Payload)
		}
	}
	for _, u := range c.NFT {
		for _, m := range u.Messages {
			if m.Kind == unix.NFT_MSG_NEWSETELEM && name(attributes(m.Payload, 1)[1]) != kubeProxy {
				fmt.Fprintf(h, "%x\n", m.Payload)
			}
		}
	}
	for i := range c.Legacy {
		c.Legacy[i].fingerprint(h.Write, c.Parts)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// fingerprint writes the entries of other programs, without their counters and the places of the chains to which they lead.
func (l *Legacy) fingerprint(write func([]byte) (int, error), parts []Part) {
	list, _, err := entries(&l.Table)
	if err != nil {
		return
	}
	next := map[bool]int{false: entryNext4, true: entryNext6}[l.IPv6]
	const counters = 16
	at := (next + 6 + 7) &^ 7 // the counters are aligned
	for i, e := range list {
		if i >= len(l.Parts) || l.Parts[i] < 0 || parts[l.Parts[i]].Own {
			continue
		}
		b := slices.Clone(l.Blob[e.at : e.at+e.size])
		clear(b[next-2 : min(at+counters, len(b))])
		if e.standard && e.verdict >= 0 {
			clear(b[e.target-e.at+targetVerdict:])
		}
		_, _ = write(b)
	}
}
