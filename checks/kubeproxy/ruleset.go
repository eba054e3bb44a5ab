package kubeproxy

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// Ruleset is what was read: any number of iptables saves and nft listings. Its zero value is empty.
type Ruleset struct {
	Lines int // lines of the iptables-save text

	saves []*save
	nft   []*nftTable
	// leftover counts the KUBE-SVC and KUBE-SVL chains by family in an nft listing: iptables mode seen through nft.
	leftover map[string]int
}

// Join puts several readings of one node together, so that both iptables backends and nft can be judged in one report.
func Join(sets ...*Ruleset) *Ruleset {
	joined := &Ruleset{leftover: map[string]int{}}
	for _, rs := range sets {
		if rs == nil {
			continue
		}
		joined.Lines += rs.Lines
		joined.saves = append(joined.saves, rs.saves...)
		joined.nft = append(joined.nft, rs.nft...)
		for family, n := range rs.leftover {
			joined.leftover[family] += n
		}
	}
	return joined
}

// Parse reads iptables-save text or the JSON of `nft -j list ruleset`, whichever r holds.
func Parse(r io.Reader) (*Ruleset, error) {
	br := bufio.NewReader(r)
	for n := 1; n <= 4096; n++ {
		head, err := br.Peek(n)
		if err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			return nil, &InputError{Msg: "reading rules", Kind: ErrUnknown, Err: err}
		}
		switch head[n-1] {
		case ' ', '\t', '\r', '\n':
			continue
		case '{':
			return ParseNFT(br)
		}
		break
	}
	return ParseIptablesSave(br)
}

// Families of rules, in nft's words.
const (
	familyIPv4 = "ip"
	familyIPv6 = "ip6"
)

// Backends of iptables.
const (
	backendLegacy = "legacy"
	backendNFT    = "nft"
)

// save is the output of one run of iptables-save or ip6tables-save.
type save struct {
	family  string // empty until known
	backend string // empty when no header names it
	tables  []*table
}

func (s *save) table(name string) *table {
	for _, t := range s.tables {
		if t.name == name {
			return t
		}
	}
	return nil
}

type table struct {
	name   string
	line   int
	order  []*chain
	chains map[string]*chain // while declarations are read: nil
}

// chain returns nil when the table is nil or has no such chain.
func (t *table) chain(name string) *chain {
	if t == nil {
		return nil
	}
	return t.chains[name]
}

// declared reports whether the table has a chain of that name with a declaration of its own.
func (t *table) declared(name string) bool {
	c := t.chain(name)
	return c != nil && c.declared
}

type chain struct {
	name        string
	at          int32 // in table.order
	line        int32
	n           int32 // rules
	refs        int32 // jumps that lead here
	jumps       int32 // jumps to other chains
	stamp       int32 // of the dispatch that met it last
	declared    bool
	blamed      bool // a finding explains it; its symptoms stay silent
	deep        bool // leads to a chain that leads on
	state       uint8
	first, last *rule
	only        *chain // where all its jumps lead, if to one
	owner       *node  // the Service whose chain it is, once known

	// Of an endpoint's chain:
	claim     claim  // the first dispatch that leads to it
	translate *rule  // its DNAT rule
	address   string // where that leads
}

type flags uint32

// Flags of a rule. The cond flags say that a rule matches only some packets.
const (
	condSrc flags = 1 << iota
	condDst
	condProto
	condDport
	condIface
	condMark
	condState
	condSrcType // addrtype --src-type LOCAL
	condDstType // addrtype --dst-type LOCAL
	condStat
	condRecent // recent --rcheck
	condSet
	condOther
	notSrc
	notDst
	notMark
	notIface
	recentSet
	recentReap
	recentOdd // remembers something else than the client's whole address
	randomFully
	cannotRead // this host's iptables could not print the rule: kubernetes#95409, #114537
	conds      = condSrc | condDst | condProto | condDport | condIface | condMark | condState | condSrcType | condDstType |
		condStat | condRecent | condSet | condOther
)

// rule is one -A line. Its strings are substrings of the input. A large save has 150,000 of them, so what few rules have stands in extra.
type rule struct {
	chain  *chain
	jump   *chain // the chain that target names
	next   *rule
	flags  flags
	line   int32
	target string // of -j or -g
	src    string
	detail string // DNAT: destination; MARK: value; mark: value; conntrack: states; set: name
	proto  string
	prob   float64

	dst, dport string
	comment    string
	text       string
	more       *extra
}

// extra is what few rules have.
type extra struct {
	iface   string
	recent  string // list of recent
	seconds int32
}

// extra returns the rule's extra to be filled in.
func (r *rule) extra() *extra {
	if r.more == nil {
		r.more = &extra{}
	}
	return r.more
}

func (r *rule) iface() string {
	if r.more == nil {
		return ""
	}
	return r.more.iface
}

func (r *rule) recent() string {
	if r.more == nil {
		return ""
	}
	return r.more.recent
}

func (r *rule) seconds() int32 {
	if r.more == nil {
		return 0
	}
	return r.more.seconds
}

func (r *rule) has(f flags) bool { return r.flags&f == f }

// always reports that every packet matches.
func (r *rule) always() bool { return r.flags&conds == 0 }

// addLeftover notes what a table of iptables-nft holds in an nft listing.
func (rs *Ruleset) addLeftover(family, chain string) {
	if strings.HasPrefix(chain, "KUBE-SVC-") || strings.HasPrefix(chain, "KUBE-SVL-") {
		if rs.leftover == nil {
			rs.leftover = map[string]int{}
		}
		rs.leftover[family]++
	}
}
