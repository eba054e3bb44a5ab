package datapath

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Render writes the result for people: the summary, and the paths of the request and the reply with the
// packets counted at each point.
func (r BridgeResult) Render(w io.Writer) error {
	var b bytes.Buffer
	if r.Pass {
		fmt.Fprintf(&b, "%s\n", r.Summary)
	} else {
		fmt.Fprintf(&b, "%s: %s\n", r.Lost, r.Summary)
	}
	o := r.Observed
	fmt.Fprintf(&b, "  %s to %s, endpoint %s, with this host's rules and settings; %s\n\n", r.Client, r.Service, r.Endpoint, r.Duration)
	for _, line := range [][4]string{
		{"request", "", "reply", ""},
		{"sent by the client", formatCount(o.Sent), "sent by the endpoint", formatCount(o.Answered)},
		{"in PREROUTING", formatCount(o.Hooks.Request.Prerouting), "in PREROUTING", formatCount(o.Hooks.Reply.Prerouting)},
		{"translated", formatCount(o.Hooks.Translated), "", ""},
		{"in FORWARD", formatCount(o.Hooks.Request.Forward), "in FORWARD", formatCount(o.Hooks.Reply.Forward)},
		{"in POSTROUTING", formatCount(o.Hooks.Request.Postrouting), "in POSTROUTING", formatCount(o.Hooks.Reply.Postrouting)},
		{"at the endpoint", formatCount(o.Arrived), "at the client, translated", formatCount(o.Translated)},
		{"", "", "at the client, untranslated", formatCount(o.Untranslated)},
		{"", "", "reset by the client", formatCount(o.Resets)},
	} {
		fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("  %-20s %4s   %-28s %4s", line[0], line[1], line[2], line[3]), " "))
	}
	fmt.Fprintf(&b, "\n  net.ipv4.ip_forward=%s net.bridge.bridge-nf-call-iptables=%s\n", o.Settings.Forward, o.Settings.CallIPTables)
	if f := o.Conntrack; f != nil {
		fmt.Fprintf(&b, "  conntrack: %s, replies expected from %s, %s\n", f.TCPState, f.Reply.From, describeReply(f.SeenReply))
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(&b, "  warning: %s\n", warning)
	}
	if r.Remedy != "" {
		fmt.Fprintf(&b, "  remedy: %s\n", r.Remedy)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func formatCount[T int | uint64](n T) string { return fmt.Sprint(n) }

func describeReply(seen bool) string {
	if seen {
		return "a reply was seen"
	}
	return "no reply was seen"
}
