package ruleset

import (
	"strconv"
	"strings"
)

// Flags describe the matches and actions of a rule.
type Flags uint32

// Flags of a rule. Those in the first group are conditions: a rule with one of them matches only
// some packets.
const (
	BySource Flags = 1 << iota
	ByDestination
	ByProtocol
	ByPort // destination port
	ByInterface
	ByMark
	ByState
	FromLocal // addrtype --src-type LOCAL
	ToLocal   // addrtype --dst-type LOCAL
	ByChance  // statistic
	ByRecent  // recent --rcheck
	BySet
	ByOther // any other condition

	NotSource // these conditions are negated: "! -s"
	NotDestination
	NotMark
	NotInterface

	RecentSet   // recent --set: the rule stores the client's address
	RecentReap  // recent --reap
	RecentOther // recent stores something other than the client's full address
	RandomFully
	Unprintable // this host's iptables could not print the rule: kubernetes#95409, #114537
	mayJump     // the target is not one of the common built-in targets

	Conditions = BySource | ByDestination | ByProtocol | ByPort | ByInterface | ByMark | ByState | FromLocal | ToLocal |
		ByChance | ByRecent | BySet | ByOther
)

// Rule is one -A line. Its strings are substrings of the input. A large save has 150,000 rules, so
// fields that few rules need are in Extra.
type Rule struct {
	Flags       Flags
	Line        int32
	Chain       int32  // Index of its chain
	Jump        int32  // Index of the target chain; 0 if the table has no chain of that name
	Target      string // of -j or -g
	Source      string
	Destination string
	Protocol    string
	Port        string  // destination port or ports
	Chance      float64 // statistic --probability
	To          string  // DNAT destination
	Comment     string
	Text        string // without counters

	extra *Extra
}

// Extra holds the fields that few rules need.
type Extra struct {
	In      string // interface that the rule matches
	States  string // connection states: "RELATED,ESTABLISHED"
	Mark    string // mark that the rule matches: "0x4000/0x4000"
	SetMark string // mark that target MARK sets
	Recent  string // name of the recent list
	Seconds int32  // recent --seconds
}

// Extra returns the fields that few rules need.
func (r *Rule) Extra() Extra {
	if r.extra == nil {
		return Extra{}
	}
	return *r.extra
}

// extraForWriting returns the rule's Extra for writing, and allocates it if necessary.
func (r *Rule) extraForWriting() *Extra {
	if r.extra == nil {
		r.extra = &Extra{}
	}
	return r.extra
}

// Has reports whether the rule has all of the flags.
func (r *Rule) Has(f Flags) bool { return r.Flags&f == f }

// Conditions returns the flags that are conditions.
func (r *Rule) Conditions() Flags { return r.Flags & Conditions }

// Always reports whether the rule matches every packet.
func (r *Rule) Always() bool { return r.Conditions() == 0 }

// parse reads the part of a rule after its chain. It returns a description of the error, or "". A
// match that it does not know makes the rule conditional and is otherwise skipped.
func (r *Rule) parse(s string) string {
	sc := scanner{rest: s}
	not := false
	for {
		w := sc.nextWord()
		if w == "" {
			if sc.rest == "" {
				return sc.msg
			}
			continue
		}
		if w == "!" {
			not = true
			continue
		}
		r.parseOption(&sc, w, not)
		not = false
	}
}

func (r *Rule) parseOption(sc *scanner, w string, not bool) {
	switch w {
	case "-m", "--match":
		r.addMatch(sc.nextWord())
	case "--comment":
		r.Comment = sc.nextWord()
	case "-j", "-g":
		r.Target = sc.nextWord()
		switch r.Target {
		case "":
			sc.msg = "-j or -g has no target"
		case "ACCEPT", "DROP", "RETURN", "REJECT", "DNAT", "SNAT", "MASQUERADE", "MARK", "LOG":
			r.Flags &^= mayJump
		default:
			r.Flags |= mayJump
		}
	case "-s", "--source":
		r.Source = sc.nextWord()
		r.addCondition(BySource, not, NotSource)
	case "-d", "--destination":
		r.Destination = sc.nextWord()
		r.addCondition(ByDestination, not, NotDestination)
	case "-p", "--protocol":
		r.Protocol = protocolName(sc.nextWord())
		r.addCondition(ByProtocol, not, ByOther)
	case "--dport", "--dports", "--destination-port":
		r.Port = sc.nextWord()
		r.addCondition(ByPort, not, ByOther)
	case "-i", "--in-interface", "--physdev-in":
		r.extraForWriting().In = sc.nextWord()
		r.addCondition(ByInterface, not, NotInterface)
	case "-o", "--out-interface":
		sc.nextWord()
		r.Flags |= ByOther
	case "--ctstate", "--state":
		r.extraForWriting().States = sc.nextWord()
		r.addCondition(ByState, not, ByOther)
	case "--mark":
		r.extraForWriting().Mark = sc.nextWord()
		r.addCondition(ByMark, not, NotMark)
	case "--src-type":
		r.addCondition(FromLocal, not || sc.nextWord() != "LOCAL", ByOther)
	case "--dst-type":
		r.addCondition(ToLocal, not || sc.nextWord() != "LOCAL", ByOther)
	case "--match-set":
		sc.nextWord() // name of the set
		sc.nextWord() // direction: src, dst
		r.addCondition(BySet, not, ByOther)
	default:
		r.parseExtension(sc, w)
	}
}

// parseExtension reads the options of statistic, recent and the targets.
func (r *Rule) parseExtension(sc *scanner, w string) {
	switch w {
	case "--mode":
		r.Flags |= ByChance
		if sc.nextWord() != "random" {
			r.Flags |= ByOther
		}
	case "--probability":
		r.Flags |= ByChance
		p, err := strconv.ParseFloat(sc.nextWord(), 64)
		if err != nil || !(p >= 0 && p <= 1) {
			sc.msg = "--probability must be a number from 0 to 1"
			return
		}
		r.Chance = p
	case "--rcheck", "--update":
		r.Flags |= ByRecent
	case "--seconds":
		n, err := strconv.ParseInt(sc.nextWord(), 10, 32)
		if err != nil {
			sc.msg = "--seconds must be a number"
		}
		r.extraForWriting().Seconds = int32(n)
	case "--name":
		r.extraForWriting().Recent = sc.nextWord()
	case "--set":
		r.Flags |= RecentSet
	case "--reap":
		r.Flags |= RecentReap
	case "--mask":
		if m := sc.nextWord(); m != "255.255.255.255" && m != "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" {
			r.Flags |= RecentOther
		}
	case "--rdest":
		r.Flags |= RecentOther
	case "--nfacct-name", "--reject-with", "--log-prefix":
		sc.nextWord()
	case "--rsource":
	case "--to-destination":
		r.To = sc.nextWord()
		r.detectUnprintable(r.To)
	case "--set-xmark", "--set-mark", "--or-mark", "--xor-mark", "--and-mark":
		v := sc.nextWord()
		r.detectUnprintable(v)
		switch w {
		case "--or-mark":
			v = v + "/" + v
		case "--xor-mark":
			v += "/0x0"
		}
		r.extraForWriting().SetMark = v
	case "--random-fully":
		r.Flags |= RandomFully
	case "[unsupported":
		r.Flags |= Unprintable
	default:
		if r.Target == "" && strings.HasPrefix(w, "-") {
			r.Flags |= ByOther
		}
	}
}

// detectUnprintable sets Unprintable if value is a placeholder that an old iptables prints for an unknown
// match or target.
func (r *Rule) detectUnprintable(value string) {
	if value == ":0" || value == "0.0.0.0:0" || value == "" || strings.HasPrefix(value, "--") {
		r.Flags |= Unprintable
	}
}

// addMatch sets the flags of matches that are conditions by their mere presence.
func (r *Rule) addMatch(name string) {
	switch name {
	case "comment", "tcp", "udp", "sctp", "conntrack", "state", "addrtype", "recent", "statistic", "mark", "nfacct", "physdev", "set":
	default:
		r.Flags |= ByOther
	}
}

func (r *Rule) addCondition(cond Flags, not bool, negated Flags) {
	r.Flags |= cond
	if not {
		r.Flags |= negated
	}
}
