// Package model describes Services as kube-proxy knows them, and reads them from the rules that kube-proxy wrote. If rules contradict each
// other, the majority decides, so that the others differ from kube-proxy's rules for the model.
package model

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"

	"nodegate/internal/ruleset"
)

// Port is one port of a Service.
type Port struct {
	Service        // what the rules show of it; Name is as in their comments
	Hash    string // in the names of its chains; "" without chains
	Named   bool   // the hash of name and protocol is Hash

	SVC, SVL, EXT, FW *ruleset.Chain // its chains

	Number, Node string    // Port and NodePort as rules have them; "" if none has it
	Loopback     bool      // the node port has a rule for 127.0.0.0/8
	Outside      []Address // its addresses for external traffic
	Affinity     int32     // seconds; -1 if only the endpoints show it
	Ranges       []string  // the sources that FW admits; "" for all

	Lines    []*ruleset.Rule // its rules in chains that Services share
	Portal   *ruleset.Rule   // its rule for the ClusterIP
	witness  *ruleset.Rule   // the rule that masquerades connections to the ClusterIP
	serves   *ruleset.Rule   // its rule for the node port at all addresses
	detector Detector        // of the witness
}

// Served reports whether rules of table nat show a ClusterIP with endpoints.
func (p *Port) Served() bool { return p.ClusterIP != "" && p.Blocked == "" }

// Address is an address for external traffic.
type Address struct {
	IP       string
	Ranged   bool // only some sources may use it
	Balancer bool // it is a load balancer's, as far as the rules show it
	Blocked  bool // table nat has no rule for it, only table filter
}

// Detector describes the connections that are masqueraded, by the negation of how kube-proxy recognises local traffic.
type Detector struct {
	Flags  ruleset.Flags
	Source string
	In     string
}

// DetectorOf returns the detector of a rule that marks packets.
func DetectorOf(r *ruleset.Rule) Detector {
	const by = ruleset.BySource | ruleset.NotSource | ruleset.ByInterface | ruleset.NotInterface
	d := Detector{Flags: r.Flags & by, Source: r.Source}
	if r.Has(ruleset.ByInterface) {
		d.In = r.Extra().In
	}
	return d
}

// Chain is the model's knowledge of a chain.
type Chain struct {
	*ruleset.Chain
	Kind string // SVC, SVL, EXT, FW, SEP; "" for any other
	Port *Port  // its Service
	Left bool   // unused, but not yet deleted

	// Of an endpoint:
	Address   string        // ip:port, as its rules agree; "" if it is not known
	To        string        // where its rule leads
	Named     bool          // the chain's name is the hash of Service and address, or that cannot be known
	Translate *ruleset.Rule // its DNAT rule
	stamp     int32
}

// Parameters are the settings of kube-proxy that the rules show.
type Parameters struct {
	Large      bool      // unused chains stay for a time
	Masquerade *Detector // of connections to ClusterIPs; nil without one
	Pods       Detector  // recognises Pods for policy Local; zero without one
	Bit        uint64    // of the mark for masquerading
	Loopback   bool      // node ports have a rule for 127.0.0.0/8
}

// Model is the Services of one save.
type Model struct {
	Parameters
	Save          *ruleset.Save
	NAT, Filter   *ruleset.Table // nil if missing or flushed
	Chains        []Chain        // by Index; index 0 is unused
	Ports         []*Port
	Strangers     []*ruleset.Rule // rules of chains that Services share that belong to no Service
	NodePortJumps []*ruleset.Rule
	Unreadable    int // rules that iptables could not print
	FirstUnread   *ruleset.Rule
	Replaced      []*ruleset.Rule // DNAT rules of endpoints whose rules agree on an address, but not their chain's name

	health map[string]int // health check node ports, by Service port
	hash   Hasher
	byHash map[string]*Port
	byName map[portName]*Port
	stamp  int32
	rivals []rival // further Services that lead to an endpoint of another
}

type portName struct{ name, protocol string }

type rival struct {
	chain int32
	port  *Port
}

// Chain returns the model's knowledge of a chain of a table, or nil.
func (m *Model) Chain(t *ruleset.Table, name string) *Chain {
	if c := t.Chain(name); c != nil {
		return &m.Chains[c.Index]
	}
	return nil
}

// ServiceChain splits "KUBE-SVC-XXXXXXXXXXXXXXXX" into "SVC" and the hash.
func ServiceChain(name string) (kind, hash string) {
	rest, ok := strings.CutPrefix(name, "KUBE-")
	if !ok {
		return "", ""
	}
	kind, hash, ok = strings.Cut(rest, "-")
	if !ok || len(hash) != 16 {
		return "", ""
	}
	for _, known := range [...]string{"SEP", "SVC", "SVL", "EXT", "FW"} {
		if kind == known {
			return known, hash // not a part of the name, which is far away in memory
		}
	}
	return "", ""
}

// SplitPortal splits a comment of KUBE-SERVICES into the Service port and the purpose of the rule. Large-cluster mode
// keeps these comments.
func SplitPortal(comment string) (name, what string) {
	for _, what := range []string{"cluster IP", "external IP", "loadbalancer IP", "has no endpoints", "has no local endpoints"} {
		if name, ok := strings.CutSuffix(comment, what); ok && strings.HasSuffix(name, " ") {
			return name[:len(name)-1], what
		}
	}
	return "", ""
}

// MarkMask splits "0x4000/0x4000".
func MarkMask(s string) (mark, mask uint64, ok bool) {
	value, maskText, slash := strings.Cut(s, "/")
	mark, err := strconv.ParseUint(value, 0, 32)
	if err != nil {
		return 0, 0, false
	}
	if !slash {
		return mark, 0xffffffff, true
	}
	mask, err = strconv.ParseUint(maskText, 0, 32)
	return mark, mask, err == nil
}

// TrimCIDR removes the prefix length of a single address: "10.96.0.1/32".
func TrimCIDR(s string) string {
	if rest, ok := strings.CutSuffix(s, "/32"); ok && !strings.Contains(rest, ":") {
		return rest
	}
	return strings.TrimSuffix(s, "/128")
}

// SplitAddress splits "10.0.0.1:80" or "[2001:db8::1]:80".
func SplitAddress(s string) (ip, port string) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(s[:i], "["), "]"), s[i+1:]
}

// Hasher computes the hashes in chain names without an allocation for each.
type Hasher struct {
	in  []byte
	out [16]byte
}

// Sum16 returns the first 16 base32 characters of the SHA-256 of the joined parts. The next call overwrites the result.
//
// In iptables mode, the hash is the suffix of a chain's name. For KUBE-SVC-, KUBE-SVL-, KUBE-EXT- and KUBE-FW- chains, its input
// is a Service port, written as `ns/name[:port]`, and the protocol in lower case. For KUBE-SEP- chains, the endpoint follows: `ip:port` or
// `[ip]:port`.
//
// In nftables mode, the eight characters before a name are the start of its hash. The input is `ns/name/proto/port`, for an endpoint
// followed by `__ip/port` (with `.` instead of `:` in IPv6 addresses).
func (h *Hasher) Sum16(parts ...string) []byte {
	h.in = h.in[:0]
	for _, p := range parts {
		h.in = append(h.in, p...)
	}
	sum := sha256.Sum256(h.in)
	base32.StdEncoding.Encode(h.out[:], sum[:10])
	return h.out[:]
}

func textOf(v any) string { return fmt.Sprint(v) }

func atoi(s string) int {
	n, _ := strconv.Atoi(s) // 0 means unknown
	return n
}
