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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/replica"
	"nodegate/internal/ruleset"
)

// Question asks where packets of the node arrive.
type Question struct {
	Cluster Cluster
	Keys    []string // of the Service ports: see replica.Read
	Sender  string   // ask only about connections to Services from an address, a Pod, the node, or outside; empty: ask about all
	Unless  string   // do nothing if this is the fingerprint of the node's network
}

// Answer is what packets in a replica showed.
type Answer struct {
	Fingerprint string    `json:"fingerprint"`
	Unchanged   bool      `json:"unchanged,omitempty"`
	Flows       []Outcome `json:"flows,omitempty"`
	Losses      []Loss    `json:"losses,omitempty"`
	Refused     []string  `json:"refused,omitempty"` // by the kernel, and so not tried
	Stray       []string  `json:"stray,omitempty"`   // faults of links that keep all packets from their Pods
	Misled      []string  `json:"misled,omitempty"`  // ports of the node that lead to no Pod
	Skipped     string    `json:"skipped,omitempty"` // why nothing was tried, although nothing failed
	Error       string    `json:"error,omitempty"`
	Denied      bool      `json:"denied,omitempty"` // the error is a lack of privilege
}

// Loss is the cause of some losses. Without a Kind none was found.
type Loss struct {
	Kind     string    `json:"kind,omitempty"` // as replica.Part's, as are the next ones
	Legacy   bool      `json:"legacy,omitempty"`
	Family   string    `json:"family,omitempty"`
	Table    string    `json:"table,omitempty"`
	Chain    string    `json:"chain,omitempty"`
	Handle   uint64    `json:"handle,omitempty"`
	Position int       `json:"position,omitempty"`
	Own      bool      `json:"own,omitempty"`    // kube-proxy or kubelet wrote it
	Policy   bool      `json:"policy,omitempty"` // a program wrote it that enforces NetworkPolicies
	Owner    string    `json:"owner,omitempty"`  // a program, as far as the names show it
	Rule     string    `json:"rule,omitempty"`   // as its program prints it
	Cured    bool      `json:"cured,omitempty"`  // without it the packets pass
	Taken    bool      `json:"taken,omitempty"`  // it leads to a port of this node at which a program listens, such as a proxy
	Flows    []Outcome `json:"flows"`
}

// Ask answers a question about the node by packets in a replica. The node notices nothing. It needs CAP_NET_ADMIN.
func (q *Question) Ask(ctx context.Context, inUserNamespace func(context.Context, []byte) ([]byte, error)) (a Answer, err error) {
	n, err := replica.Read(ctx, q.keep)
	if err != nil {
		return a, err
	}
	if a.Fingerprint = n.Fingerprint(); a.Fingerprint == q.Unless {
		a.Unchanged = true
		return a, nil
	}
	everything := q.Sender == "" && !q.Cluster.Page.IsValid()
	if everything {
		a.Stray = n.Stray(func(is6 bool) bool {
			is := func(s Service) bool { return len(s.Addresses) > 0 && s.Addresses[0].Addr().Is6() == is6 }
			return slices.ContainsFunc(q.Cluster.Services, is)
		})
	}
	switch {
	case everything && !n.HasForeign():
		return a, nil // nothing can lose packets but kube-proxy's own rules
	case !n.HasVeth():
		a.Fingerprint, a.Skipped = "", noPods
		return a, nil
	}
	running := n.HostPorts(replica.CachedResults)
	q.Cluster.Observe(n)
	print, stray, misled := a.Fingerprint, a.Stray, q.Cluster.Misled(n)
	if a, err := netip.ParseAddr(q.Sender); err == nil {
		q.Cluster.addSender(a, n)
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
	a.Fingerprint, a.Stray, a.Misled = print, stray, misled
	a.Refused = append(a.Refused, q.Cluster.Astray(n)...)
	a.DropGone(running, n.HostPorts(replica.CachedResults))
	for i := range a.Losses {
		l := &a.Losses[i]
		if at := l.index(n); at >= 0 {
			l.describe(ctx, n, at)
		}
	}
	taken := slices.ContainsFunc(a.Losses, func(l Loss) bool { return l.Taken })
	for i := range a.Losses { // beside a proxy of the node nothing is known of a loss without a cause
		a.Losses[i].Taken = a.Losses[i].Taken || a.Losses[i].Kind == "" && taken
	}
	return a, err
}

// DropGone removes the losses of host ports that were there before the packets, and are not after them: portmap deletes rules before links.
func (a *Answer) DropGone(running, left []ruleset.HostPort) {
	for i := range a.Losses {
		a.Losses[i].Flows = slices.DeleteFunc(a.Losses[i].Flows, func(o Outcome) bool {
			its := func(p ruleset.HostPort) bool { return o.Kind == ToHostPort && p.To == o.Want[0] }
			return slices.ContainsFunc(running, its) && !slices.ContainsFunc(left, its)
		})
	}
}

// mirror matches the words of a rule that sends copies of packets elsewhere.
var mirror = regexp.MustCompile(`-j TEE|\bdup to\b`)

// describe adds the words of the part that is the cause, in the namespace of the capture.
func (l *Loss) describe(ctx context.Context, n *replica.Capture, part int) {
	if l.Kind != replica.PartSysctl && n.Parts[part].Entries == nil { // the others are named in full
		l.Rule = n.Parts[part].Words(ctx)
	}
	if mirror.MatchString(l.Rule) {
		l.Flows = nil // the other side answers the copies too: no loss on the node
	}
	l.Taken = leadsToProgram(l.Rule, n) ||
		l.Kind == replica.PartRoutingRule && strings.Contains(l.Rule, "fwmark") && deliversAll(ctx, n.Parts[part])
}

// leadsToProgram reports whether a rule redirects packets to a port of the node at which a program listens.
func leadsToProgram(rule string, n *replica.Capture) bool {
	to := regexp.MustCompile(`--to-ports (\d+)|--on-port (\d+)|(?:redirect|tproxy)[a-z0-9 ]* to (?:[0-9.]+|\[[0-9a-f:]+\])?:(\d+)|` +
		`(?:--to-destination|dnat[a-z0-9 ]* to) (?:127[.0-9]+|\[::1\]):(\d+)`)
	m := to.FindStringSubmatch(rule)
	return m != nil && slices.ContainsFunc(n.Listeners, func(l replica.Listener) bool {
		return slices.Contains(m[1:], strconv.Itoa(int(l.At.Port())))
	})
}

// deliversAll reports whether a routing rule leads to a table that delivers all packets to this node, as TPROXY needs it.
func deliversAll(ctx context.Context, rule replica.Part) bool {
	rule.Kind, rule.To = replica.PartRoute, "default"
	return strings.HasPrefix(rule.Words(ctx), "local ")
}

// Senders beside addresses.
const (
	FromPod     = "pod"
	FromNode    = "node"
	FromOutside = "outside"
)

// addSender makes a Pod of an address in the range of the node's Pods, and another machine of any other one.
func (c *Cluster) addSender(a netip.Addr, n *replica.Capture) {
	is := func(p replica.Pod) bool { return slices.Contains(p.Addresses, a) }
	if one := n.Pods([]netip.Addr{a}, 1); slices.ContainsFunc(one, is) {
		c.Pods = append(one, slices.DeleteFunc(c.Pods, is)...)
	} else if !slices.Contains(n.Own(), a) {
		c.Outside = append(c.Outside, netip.AddrPortFrom(a, 443))
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
	soon, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := r.Control(soon); err != nil {
		return a, fmt.Errorf("this process may not send packets (IPAddressDeny= of its unit?): %v", err)
	}
	list, err := New(r).Run(ctx, flows)
	if err != nil {
		return a, err
	}
	a.Refused = r.Refused
	causes := map[int]*Loss{}
	var order []*Loss
	for i := range list {
		o := &list[i]
		if o.Part >= 0 && o.Doubt == "" {
			o.Doubt = doubt(r, o)
		}
		a.Flows = append(a.Flows, *o)
		if o.Lost == 0 && o.Link == "" && o.Doubt == "" {
			continue
		}
		l := causes[o.Part]
		if l == nil {
			l = newLoss(b.Capture, o.Part)
			causes[o.Part] = l
			order = append(order, l)
		}
		l.Flows, l.Cured = append(l.Flows, *o), l.Cured || o.Cured
	}
	for _, l := range order {
		a.Losses = append(a.Losses, *l)
	}
	return a, nil
}

// doubt returns why what loses a flow in the replica may not lose it on the node.
func doubt(r *replica.Replica, o *Outcome) string {
	part := &r.Capture.Parts[o.Part]
	switch {
	case part.Kind == replica.PartIPsec && part.Table == replica.NoAssociation:
		return "the first packet may have IKE agree on an association"
	case (part.Kind == replica.PartRoute || part.Kind == replica.PartRoutingRule) && !o.Pod && !o.Node && r.Uplinks() > 1:
		return "the replies leave by another uplink, which the network may allow"
	}
	return ""
}

func newLoss(n *replica.Capture, part int) *Loss {
	if part < 0 {
		return &Loss{}
	}
	p := &n.Parts[part]
	l := &Loss{Kind: p.Kind, Legacy: p.Legacy, Family: p.FamilyName(), Table: p.Table, Chain: p.Chain, Handle: p.Handle, Position: p.Position,
		Own: p.Own, Owner: Owner(p.Table, p.Chain)}
	switch p.Kind {
	case replica.PartRoutingRule:
		l.Position = p.Priority
	case replica.PartRoute, replica.PartNextHop, replica.PartFilter, replica.PartIPsec:
		l.Chain = p.To
	case replica.PartSysctl:
		l.Chain, l.Rule = p.To, p.Table+" = "+n.Sysctls[string(p.Message)]
	}
	l.Policy = enforcesPolicies(l.Owner)
	return l
}

// index returns the part of a capture that is the cause, or -1.
func (l *Loss) index(n *replica.Capture) int {
	return slices.IndexFunc(n.Parts, func(p replica.Part) bool {
		return p.Kind == l.Kind && p.Legacy == l.Legacy && p.FamilyName() == l.Family && p.Table == l.Table && p.Handle == l.Handle &&
			(p.To != "" && p.To == l.Chain || p.To == "" && p.Chain == l.Chain) &&
			(p.Kind != replica.PartRoutingRule || p.Priority == l.Position) && (p.Position == l.Position || p.Position == 0)
	})
}

// flows returns the flows of the question.
func (q *Question) flows(n *replica.Capture) []Flow {
	list := q.Cluster.Flows(n.Masquerades)
	if q.Sender == "" {
		return list
	}
	address, _ := netip.ParseAddr(q.Sender)
	return slices.DeleteFunc(list, func(f Flow) bool {
		asked := map[string]bool{FromPod: f.Pod, FromNode: f.Node, FromOutside: !f.Node && !f.Pod}
		is := asked[q.Sender] || f.Address == address && address.IsValid() || f.Node && slices.Contains(n.Own(), address)
		return !is || f.Big || f.Kind != ToService
	})
}

// Longest bounds the time of one answer: an emulated processor takes half a minute.
const Longest = 2 * time.Minute

const noPods = "no Pod has run on this node yet: the kernel has not loaded veth, and a copy of the node must not load it"

// Protocol returns the name of a protocol.
func Protocol(p uint8) string { return cmp.Or(map[uint8]string{unix.IPPROTO_UDP: "udp"}[p], "tcp") }
