package report

import (
	"fmt"
	"io"
	"net/netip"
	"strings"

	"nodegate/internal/audit"
	"nodegate/internal/verdict"
)

// Way is what became of connections from a sender to one address of a Service, in a copy of the node's network.
type Way struct {
	Service  string           `json:"service"`          // ns/name[:port]
	From     string           `json:"from"`             // an address, or "node"
	To       netip.AddrPort   `json:"to"`               // the Service's address
	Verdict  verdict.Verdict  `json:"verdict"`          // pass if every connection was answered by an endpoint
	Sent     int              `json:"sent"`             // connections
	Lost     int              `json:"lost,omitempty"`   // of them
	Answered []netip.AddrPort `json:"answered"`         // the endpoints that did
	Why      string           `json:"why,omitempty"`    // the last loss
	Cause    string           `json:"cause,omitempty"`  // what loses them
	Rule     string           `json:"rule,omitempty"`   // its text
	Remedy   string           `json:"remedy,omitempty"` // for the cause
}

// NewWays returns what became of each connection of an answer.
func NewWays(a *audit.Ways) (list []Way) {
	for _, f := range a.Flows {
		w := Way{Service: f.Service, From: "node", To: f.To, Verdict: verdict.Pass, Sent: f.Sent, Lost: f.Lost, Answered: f.At}
		if !f.Node {
			w.From = f.Address.String()
		}
		if f.Lost > 0 {
			w.Verdict, w.Why = verdict.Fail, f.Why
		}
		if f.Doubt != "" {
			w.Verdict, w.Why = verdict.Unknown, f.Doubt
		}
		for i := range a.Losses {
			l := &a.Losses[i]
			for _, lost := range l.Flows {
				if lost.Name == f.Name {
					w.Cause, w.Rule, w.Remedy = audit.Describe(l), l.Rule, audit.Remedy(l, []audit.Flow{f})
				}
			}
		}
		list = append(list, w)
	}
	return list
}

// Ways is the document of WaysDocument.
type Ways struct {
	APIVersion string `json:"apiVersion"` // nodegate/v1
	Kind       string `json:"kind"`       // Ways
	Ways       []Way  `json:"ways"`       // one for each port, family and address
}

// WaysDocument returns the document of ways.
func WaysDocument(list []Way) Ways { return Ways{APIVersion, "Ways", list} }

// WriteWays writes ways as text.
func WriteWays(w io.Writer, list []Way) error {
	var b strings.Builder
	for _, way := range list {
		fmt.Fprintf(&b, "%s: %s from %s to %s", way.Verdict, way.Service, way.From, way.To)
		if way.Lost > 0 {
			fmt.Fprintf(&b, ": %d of %d connections lost (%s)", way.Lost, way.Sent, way.Why)
		}
		b.WriteByte('\n')
		if len(way.Answered) > 0 {
			var ends []string
			for _, a := range way.Answered {
				ends = append(ends, a.String())
			}
			fmt.Fprintf(&b, "  answered by %s\n", strings.Join(ends, ", "))
		}
		if way.Cause != "" {
			fmt.Fprintf(&b, "  cause:  %s\n  remedy: %s\n", way.Cause, way.Remedy)
		}
	}
	_, err := io.WriteString(w, printableLines(b.String()))
	return err
}
