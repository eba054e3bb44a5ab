package datapath

import (
	"fmt"
	"net/netip"

	"nodegate/internal/host/netns"
)

// Loss names the lost packet and the point of the loss: a stable, greppable name. The two names that end
// in dropped may mean a firewall that accepts the addresses of Pods but not the probe's: traffic of Pods
// may then pass.
type Loss string

// The losses, in the order of the path that the packets take.
const (
	RequestUnsent       Loss = "request-unsent"
	RequestUnseen       Loss = "request-unseen"       // never in the host's PREROUTING
	RequestUntranslated Loss = "request-untranslated" // in PREROUTING, but the DNAT rule was not reached
	RequestUnrouted     Loss = "request-unrouted"     // translated, never in FORWARD
	RequestDropped      Loss = "request-dropped"      // in FORWARD, never in POSTROUTING
	RequestUndelivered  Loss = "request-undelivered"  // past the hooks, never at the server
	ReplyUnsent         Loss = "reply-unsent"
	ReplyUntranslated   Loss = "reply-untranslated" // reached the client with the endpoint's own address
	ReplyUnseen         Loss = "reply-unseen"       // sent, but neither in a hook nor at the client
	ReplyUnrouted       Loss = "reply-unrouted"
	ReplyDropped        Loss = "reply-dropped"
	ReplyUndelivered    Loss = "reply-undelivered"
	Incomplete          Loss = "incomplete" // translated replies arrive, but the connection fails
)

// Observed holds the packet counts: from the probe's own rules in the host's IP hooks, and from packet
// sockets at both ends. The verdict is based on these alone.
type Observed struct {
	Exchanged bool   `json:"exchanged"`       // connected, and the token was echoed
	Error     string `json:"error,omitempty"` // the reason if not exchanged
	// Requests are segments with SYN and without ACK. Replies are all segments from the endpoint's port.
	Sent         int        `json:"sent"`         // requests, by the client
	Hooks        netns.Hits `json:"hooks"`        // packets in the host's hooks
	Arrived      int        `json:"arrived"`      // requests, at the server
	Answered     int        `json:"answered"`     // replies, by the server
	Translated   int        `json:"translated"`   // replies at the client, from the Service address
	Untranslated int        `json:"untranslated"` // replies at the client, from the endpoint's own address
	Resets       int        `json:"resets"`       // RSTs that the client sent in answer to untranslated replies
	// Masqueraded means that the server saw another source address than the client's, so its reply goes to
	// the host whatever the bridge does.
	Masqueraded bool        `json:"masqueraded"`
	Settings    Settings    `json:"settings"`            // of the network namespace that was probed
	Conntrack   *netns.Flow `json:"conntrack,omitempty"` // the client's connection, in the host's table
}

// Settings holds the kernel's own values; Absent for a setting that it lacks.
type Settings struct {
	Forward      string `json:"net.ipv4.ip_forward"`                // the value, "" if there is none
	CallIPTables string `json:"net.bridge.bridge-nf-call-iptables"` // the value, "" without br_netfilter
}

// Absent is the value of a setting that the kernel lacks.
const Absent = "absent"

func (o *Observed) countSegments(client, server []netns.Segment, service, endpoint, me netip.AddrPort) {
	for _, s := range client {
		switch {
		case s.Out && s.To == service && s.Flags&(netns.SYN|netns.ACK) == netns.SYN:
			o.Sent++
		case s.Out && s.To == endpoint && s.Flags&netns.RST != 0:
			o.Resets++
		case !s.Out && s.From == service:
			o.Translated++
		case !s.Out && s.From == endpoint:
			o.Untranslated++
		}
	}
	for _, s := range server {
		switch {
		case !s.Out && s.To == endpoint && s.Flags&(netns.SYN|netns.ACK) == netns.SYN:
			o.Arrived++
			o.Masqueraded = s.From.Addr() != me.Addr()
		case s.Out && s.From == endpoint:
			o.Answered++
		}
	}
}

// judge fills in the verdict from the observation.
func (r *BridgeResult) judge() {
	o := r.Observed
	r.Lost = o.findLoss()
	r.Pass = r.Lost == ""
	switch {
	case r.Pass:
		r.Summary = "the reply came back translated"
		if o.Masqueraded {
			r.Summary += ", but only because this host masquerades the request: the bridge itself was not tested"
		}
	default:
		r.Summary, r.Remedy = o.explain(r.Lost)
	}
}

func (o Observed) findLoss() Loss {
	request, reply := o.Hooks.Request, o.Hooks.Reply
	switch {
	case o.Exchanged:
		return ""
	case o.Sent == 0:
		return RequestUnsent
	case o.Untranslated > 0:
		return ReplyUntranslated
	case o.Translated > 0:
		return Incomplete
	case o.Answered > 0 && reply.Prerouting == 0:
		return ReplyUnseen
	case o.Answered > 0 && reply.Forward == 0:
		return ReplyUnrouted
	case o.Answered > 0 && reply.Postrouting == 0:
		return ReplyDropped
	case o.Answered > 0:
		return ReplyUndelivered
	case o.Arrived > 0:
		return ReplyUnsent
	case request.Prerouting == 0:
		return RequestUnseen
	case o.Hooks.Translated == 0:
		return RequestUntranslated
	case request.Forward == 0:
		return RequestUnrouted
	case request.Postrouting == 0:
		return RequestDropped
	}
	return RequestUndelivered
}

// lasting ends a remedy that the next boot would undo.
const lasting = "; `nodegate install` keeps it across reboots"

// explain returns the summary and the remedy of a loss.
func (o Observed) explain(lost Loss) (summary, remedy string) {
	const (
		forward = "run `sysctl -w net.ipv4.ip_forward=1`" + lasting
		dropped = "look for a DROP policy or rule with `iptables -S FORWARD` and `nft list ruleset` (families ip, inet and bridge)"
	)
	off := o.Settings.Forward != "1"
	switch lost {
	case RequestUnsent:
		return "the client could not send its request: " + o.Error, ""
	case RequestUnseen:
		return "the request never reached the host's PREROUTING hook", "look for rules that drop it earlier with `nft list " +
			"ruleset` (families bridge and netdev), `ebtables -L` and `tc filter`"
	case RequestUntranslated:
		return "the request reached PREROUTING but was not translated", "look for rules that drop or NOTRACK in PREROUTING (tables raw " +
			"and mangle)"
	case RequestUnrouted, ReplyUnrouted:
		summary = "the request was translated but not forwarded"
		if lost == ReplyUnrouted {
			summary = "the reply reached PREROUTING but was not forwarded"
		}
		if off {
			return summary + ": net.ipv4.ip_forward is " + o.Settings.Forward, forward
		}
		return summary, "the routing decision drops it: check net.ipv4.conf.*.rp_filter, `ip rule` and `ip route`"
	case RequestDropped:
		return "the request was translated and dropped between FORWARD and POSTROUTING", dropped
	case RequestUndelivered:
		return "the request was translated and forwarded but never reached the endpoint",
			"look for rules that drop in POSTROUTING and in family bridge"
	case ReplyUnsent:
		return "the request arrived but the endpoint sent no reply", ""
	case ReplyUntranslated:
		return o.explainUntranslated()
	case ReplyUnseen:
		return "the reply was sent but passed no IP hook and never reached the client",
			"look for rules that drop in family bridge with `nft list ruleset` and `ebtables -L`"
	case ReplyDropped:
		return "the reply was dropped between FORWARD and POSTROUTING", dropped
	case ReplyUndelivered:
		return "the reply passed the hooks but never reached the client", "look for rules that drop in POSTROUTING and in family bridge"
	}
	return fmt.Sprintf("translated replies reached the client but the connection failed: %s", o.Error), ""
}

func (o Observed) explainUntranslated() (summary, remedy string) {
	if o.Hooks.Reply.Prerouting > 0 {
		return "the reply passed the IP hooks but was not translated back: conntrack did not know its connection",
			"look for NOTRACK rules in table raw, and for a full conntrack table"
	}
	summary = "the request was translated and answered, but the reply crossed the bridge without passing the IP hooks and was not " +
		"translated back"
	switch o.Settings.CallIPTables {
	case Absent:
		return summary + ": br_netfilter is not loaded", "run `modprobe br_netfilter && sysctl -w net.bridge.bridge-nf-call-iptables=1`" + lasting
	case "0":
		return summary + ": net.bridge.bridge-nf-call-iptables is 0", "run `sysctl -w net.bridge.bridge-nf-call-iptables=1`" + lasting
	}
	return summary, "look for rules and flowtables that bypass br_netfilter with `nft list ruleset` (families bridge and netdev) " +
		"and `tc filter`"
}
