package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/replica"
)

// Question is what is asked about the node.
type Question struct {
	Cluster Cluster
	Keys    []string // of the Service ports: see replica.Read
	Only    *Flow    // ask only about the connections of its sender to its Service, or to its address
	Unless  string   // do nothing if this is the fingerprint of the node's network
}

// Answer is what packets in a replica showed.
type Answer struct {
	Fingerprint string   `json:"fingerprint"`
	Unchanged   bool     `json:"unchanged,omitempty"`
	Flows       []Result `json:"flows,omitempty"`
	Losses      []Loss   `json:"losses,omitempty"`
	Refused     []string `json:"refused,omitempty"` // by the kernel, and so not tried
	Error       string   `json:"error,omitempty"`
	Denied      bool     `json:"denied,omitempty"` // the error is a lack of privilege
}

// Result is what became of one flow.
type Result struct {
	Name     string           `json:"name"`
	Kind     string           `json:"kind"`
	Service  string           `json:"service,omitempty"`
	Node     bool             `json:"node,omitempty"` // the sender is the node
	Pod      bool             `json:"pod,omitempty"`  // the sender is a Pod of this node
	From     netip.Addr       `json:"from"`           // the sender otherwise
	To       netip.AddrPort   `json:"to"`
	Protocol uint8            `json:"protocol"`
	At       []netip.AddrPort `json:"at,omitempty"` // what answered
	Sent     int              `json:"sent"`
	Lost     int              `json:"lost,omitempty"`
	Why      string           `json:"why,omitempty"`
	Link     string           `json:"link,omitempty"` // a tunnel by which it leaves
	Doubt    string           `json:"doubt,omitempty"`
}

// Loss is the cause of some losses. Without a Kind none was found.
type Loss struct {
	Kind     string   `json:"kind,omitempty"` // as replica.Part's, as are the next ones
	Legacy   bool     `json:"legacy,omitempty"`
	Family   string   `json:"family,omitempty"`
	Table    string   `json:"table,omitempty"`
	Chain    string   `json:"chain,omitempty"`
	Handle   uint64   `json:"handle,omitempty"`
	Position int      `json:"position,omitempty"`
	Own      bool     `json:"own,omitempty"`    // kube-proxy or kubelet wrote it
	Policy   bool     `json:"policy,omitempty"` // a program wrote it that enforces NetworkPolicies
	Owner    string   `json:"owner,omitempty"`  // a program, as far as the names show it
	Rule     string   `json:"rule,omitempty"`   // as its program prints it
	Cured    bool     `json:"cured,omitempty"`  // without it the packets pass
	Flows    []Result `json:"flows"`
}

// Ask answers a question about the node by packets in a replica. The node notices nothing. It needs CAP_NET_ADMIN.
func (q *Question) Ask(ctx context.Context, inUserNamespace func(context.Context, []byte) ([]byte, error)) (a Answer, err error) {
	n, err := replica.Read(ctx, func([]string) map[string]bool {
		keep := map[string]bool{}
		for _, key := range q.Keys {
			keep[key] = true
		}
		return keep
	})
	if err != nil {
		return a, err
	}
	if a.Fingerprint = n.Fingerprint(); a.Fingerprint == q.Unless {
		a.Unchanged = true
		return a, nil
	}
	print := a.Fingerprint
	if q.Cluster.Observe(n); q.Only != nil && !q.Only.From.Node { // the sender is a Pod
		q.Cluster.addPod(q.Only.From.Address, n)
	}
	order := built{*q, n}
	if a, err = order.run(ctx); errors.Is(err, fs.ErrPermission) {
		var in bytes.Buffer
		var out []byte
		if err = gob.NewEncoder(&in).Encode(order); err == nil {
			out, err = inUserNamespace(ctx, in.Bytes())
		}
		if err == nil {
			err = json.Unmarshal(out, &a)
		}
	}
	a.Fingerprint = print
	for i := range a.Losses {
		l := &a.Losses[i]
		if at := l.index(n); at >= 0 {
			l.Rule = n.Parts[at].Words(ctx)
		}
	}
	return a, err
}

// addPod makes a Pod of an address in the range of the node's Pods.
func (c *Cluster) addPod(a netip.Addr, n *replica.Capture) {
	if slices.ContainsFunc(c.Pods, func(p replica.Pod) bool { return slices.Contains(p.Addresses, a) }) {
		return
	}
	if one := n.Pods([]netip.Addr{a}, 1); len(one) == 1 && slices.Contains(one[0].Addresses, a) {
		c.Pods = append(one, c.Pods...)
	}
}

// built is what another process needs to build the replica.
type built struct {
	Question Question
	Capture  *replica.Capture
}

// Build reads what Ask has captured, and writes the answer: in a user namespace, where this process may do what Ask may not.
func Build(ctx context.Context, in io.Reader, out io.Writer) error {
	var b built
	if err := gob.NewDecoder(in).Decode(&b); err != nil {
		return err
	}
	a, err := b.run(ctx)
	a.fail(err)
	return json.NewEncoder(out).Encode(a)
}

// Main reads a question, and writes the answer.
func Main(ctx context.Context, in io.Reader, out io.Writer, inUserNamespace func(context.Context, []byte) ([]byte, error)) error {
	var q Question
	if err := json.NewDecoder(in).Decode(&q); err != nil {
		return err
	}
	a, err := q.Ask(ctx, inUserNamespace)
	a.fail(err)
	return json.NewEncoder(out).Encode(a)
}

func (a *Answer) fail(err error) {
	if err != nil {
		a.Error, a.Denied = err.Error(), errors.Is(err, fs.ErrPermission)
	}
}

// Err returns why the question was not answered.
func (a *Answer) Err() error {
	switch {
	case a.Error == "":
		return nil
	case a.Denied:
		return fmt.Errorf("%s: %w", a.Error, fs.ErrPermission)
	}
	return errors.New(a.Error)
}

func (b *built) run(ctx context.Context) (a Answer, err error) {
	flows := b.Question.flows(b.Capture)
	r, err := replica.Build(ctx, b.Capture, &replica.Spec{Pods: b.Question.Cluster.Pods, Ports: Ports(flows)})
	if err != nil {
		return a, err
	}
	defer r.Close()
	list, err := New(r).Run(ctx, flows)
	if err != nil {
		return a, err
	}
	a.Refused = r.Refused
	causes := map[int]*Loss{}
	var order []*Loss
	for i := range list {
		o := &list[i]
		f := Result{Name: o.Flow.Name, Kind: o.Flow.Kind, Service: o.Flow.Service, Node: o.Flow.From.Node, From: o.Flow.From.Address,
			To: o.Flow.To, Protocol: o.Flow.Protocol, At: o.At, Sent: o.Sent, Lost: o.Lost, Why: o.Why, Link: o.Link, Doubt: o.Doubt}
		f.Pod = slices.ContainsFunc(b.Question.Cluster.Pods, func(p replica.Pod) bool { return slices.Contains(p.Addresses, f.From) })
		a.Flows = append(a.Flows, f)
		if o.Lost == 0 && o.Link == "" && o.Doubt == "" {
			continue
		}
		l := causes[o.Part]
		if l == nil {
			l = newLoss(b.Capture, o.Part)
			causes[o.Part] = l
			order = append(order, l)
		}
		l.Flows, l.Cured = append(l.Flows, f), l.Cured || o.Cured
	}
	for _, l := range order {
		a.Losses = append(a.Losses, *l)
	}
	return a, nil
}

func newLoss(n *replica.Capture, part int) *Loss {
	if part < 0 {
		return &Loss{}
	}
	p := &n.Parts[part]
	l := &Loss{Kind: p.Kind, Legacy: p.Legacy, Family: p.FamilyName(), Table: p.Table, Chain: p.Chain, Handle: p.Handle, Position: p.Position,
		Own: p.Own, Owner: Owner(p.Table, p.Chain)}
	if p.Kind == replica.PartRoutingRule {
		l.Position = p.Priority
	} else if p.Kind == replica.PartRoute {
		l.Chain = p.To
	}
	l.Policy = enforcesPolicies(l.Owner)
	return l
}

// index returns the part of a capture that is the cause, or -1.
func (l *Loss) index(n *replica.Capture) int {
	return slices.IndexFunc(n.Parts, func(p replica.Part) bool {
		return p.Kind == l.Kind && p.Legacy == l.Legacy && p.FamilyName() == l.Family && p.Table == l.Table && p.Handle == l.Handle &&
			(p.Kind == replica.PartRoute && p.To == l.Chain || p.Kind != replica.PartRoute && p.Chain == l.Chain) &&
			(p.Kind != replica.PartRoutingRule || p.Priority == l.Position) && (p.Position == l.Position || p.Position == 0)
	})
}

// flows returns the flows of the question.
func (q *Question) flows(n *replica.Capture) []Flow {
	list := q.Cluster.Flows(n.Masquerades)
	if q.Only == nil {
		return list
	}
	only := q.Only
	return slices.DeleteFunc(list, func(f Flow) bool {
		outside := only.From.Address.IsValid() && only.From.Address.IsUnspecified() // any other machine
		from := f.From == only.From || outside && !f.From.Node && slices.ContainsFunc(q.Cluster.Outside, func(o netip.AddrPort) bool {
			return o.Addr() == f.From.Address
		})
		return !from || f.Big || f.Kind != ToService
	})
}

// Longest bounds the time of one answer.
const Longest = 40 * time.Second

// Protocol returns the name of a protocol.
func Protocol(p uint8) string { return cmp.Or(map[uint8]string{unix.IPPROTO_UDP: "udp"}[p], "tcp") }
