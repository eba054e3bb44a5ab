package ruleset

import (
	"strconv"
	"strings"
)

// Flags say what a rule matches and does.
type Flags uint32

// Flags of a rule. The first group are conditions: the rule matches only some packets.
const (
	BySource Flags = 1 << iota
	ByDestination
	ByProtocol
	ByPort // of the destination
	ByInterface
	ByMark
	ByState
	FromLocal // addrtype --src-type LOCAL
	ToLocal   // addrtype --dst-type LOCAL
	ByChance  // statistic
	ByRecent  // recent --rcheck
	BySet
	ByOther // whatever else

	NotSource // the conditions are negated: "! -s"
	NotDestination
	NotMark
	NotInterface

	RecentSet   // recent --set: the rule remembers the client
	RecentReap  // recent --reap
	RecentOther // recent remembers something else than the client's whole address
	RandomFully
	Unprintable // this host's iptables could not print the rule: kubernetes#95409, #114537
	mayJump     // the target is none of the frequent ones that iptables has itself

	Conditions = BySource | ByDestination | ByProtocol | ByPort | ByInterface | ByMark | ByState | FromLocal | ToLocal |
		ByChance | ByRecent | BySet | ByOther
)

// Rule is one -A line. Its strings are substrings of the input. A large save has 150,000 rules, so what few of them have is in Extra.
type Rule struct {
	Flags       Flags
	Line        int32
	Chain       int32  // Index of its chain
	Jump        int32  // Index of the chain that Target names, 0 if it is none of the table
	Target      string // of -j or -g
	Source      string
	Destination string
	Protocol    string
	Port        string  // of the destination, or several
	Chance      float64 // statistic --probability
	To          string  // where DNAT leads
	Comment     string
	Text        string // without counters

	extra *Extra
}

// Extra is what few rules have.
type Extra struct {
	In, Out string // interfaces that the rule matches; Out only where it is not negated
	States  string // of connections: "RELATED,ESTABLISHED"
	Mark    string // that the rule matches: "0x4000/0x4000"
	SetMark string // that target MARK sets
	Recent  string // the list of recent
	Seconds int32  // of recent
}

// Extra returns what few rules have.
func (r *Rule) Extra() Extra {
	if r.extra == nil {
		return Extra{}
	}
	return *r.extra
}

// more returns the rule's Extra, to be filled in.
func (r *Rule) more() *Extra {
	if r.extra == nil {
		r.extra = &Extra{}
	}
	return r.extra
}

// Has reports whether the rule has all the flags.
func (r *Rule) Has(f Flags) bool { return r.Flags&f == f }

// Conditions returns the flags that are conditions.
func (r *Rule) Conditions() Flags { return r.Flags & Conditions }

// Always reports whether every packet matches.
func (r *Rule) Always() bool { return r.Conditions() == 0 }

// parse reads the part of a rule after its chain. It returns what is wrong, or "".
// A match that it does not know makes the rule conditional and is otherwise skipped.
func (r *Rule) parse(s string) string {
	sc := scanner{rest: s}
	not := false
	for {
		w := sc.word()
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
		r.option(&sc, w, not)
		not = false
	}
}

func (r *Rule) option(sc *scanner, w string, not bool) {
	switch w {
	case "-m", "--match":
		r.match(sc.word())
	case "--comment":
		r.Comment = sc.word()
	case "-j", "-g":
		r.Target = sc.word()
		switch r.Target {
		case "":
			sc.msg = "jump without a target"
		case "ACCEPT", "DROP", "RETURN", "REJECT", "DNAT", "SNAT", "MASQUERADE", "MARK", "LOG":
			r.Flags &^= mayJump
		default:
			r.Flags |= mayJump
		}
	case "-s", "--source":
		r.Source = sc.word()
		r.set(BySource, not, NotSource)
	case "-d", "--destination":
		r.Destination = sc.word()
		r.set(ByDestination, not, NotDestination)
	case "-p", "--protocol":
		r.Protocol = sc.word()
		r.set(ByProtocol, not, ByOther)
	case "--dport", "--dports", "--destination-port":
		r.Port = sc.word()
		r.set(ByPort, not, ByOther)
	case "-i", "--in-interface", "--physdev-in":
		r.more().In = sc.word()
		r.set(ByInterface, not, NotInterface)
	case "-o", "--out-interface":
		if out := sc.word(); !not {
			r.more().Out = out
		}
		r.Flags |= ByOther
	case "--ctstate", "--state":
		r.more().States = sc.word()
		r.set(ByState, not, ByOther)
	case "--mark":
		r.more().Mark = sc.word()
		r.set(ByMark, not, NotMark)
	case "--src-type":
		r.set(FromLocal, not || sc.word() != "LOCAL", ByOther)
	case "--dst-type":
		r.set(ToLocal, not || sc.word() != "LOCAL", ByOther)
	case "--match-set":
		sc.word() // its name
		sc.word() // src, dst
		r.set(BySet, not, ByOther)
	default:
		r.extension(sc, w)
	}
}

// extension reads the options of statistic, recent and the targets.
func (r *Rule) extension(sc *scanner, w string) {
	switch w {
	case "--mode":
		r.Flags |= ByChance
		if sc.word() != "random" {
			r.Flags |= ByOther
		}
	case "--probability":
		r.Flags |= ByChance
		p, err := strconv.ParseFloat(sc.word(), 64)
		if err != nil || !(p >= 0 && p <= 1) {
			sc.msg = "probability is not a number from 0 to 1"
			return
		}
		r.Chance = p
	case "--rcheck", "--update":
		r.Flags |= ByRecent
	case "--seconds":
		n, err := strconv.ParseInt(sc.word(), 10, 32)
		if err != nil {
			sc.msg = "seconds is not a number"
		}
		r.more().Seconds = int32(n)
	case "--name":
		r.more().Recent = sc.word()
	case "--set":
		r.Flags |= RecentSet
	case "--reap":
		r.Flags |= RecentReap
	case "--mask":
		if m := sc.word(); m != "255.255.255.255" && m != "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" {
			r.Flags |= RecentOther
		}
	case "--rdest":
		r.Flags |= RecentOther
	case "--nfacct-name", "--reject-with", "--log-prefix":
		sc.word()
	case "--rsource":
	case "--to-destination":
		r.To = sc.word()
		r.printed(r.To)
	case "--set-xmark", "--set-mark", "--or-mark", "--xor-mark", "--and-mark":
		v := sc.word()
		r.printed(v)
		switch w {
		case "--or-mark":
			v = v + "/" + v
		case "--xor-mark":
			v += "/0x0"
		}
		r.more().SetMark = v
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

// printed notes a value that an old iptables prints for one that it does not know.
func (r *Rule) printed(value string) {
	if value == ":0" || value == "" {
		r.Flags |= Unprintable
	}
}

// match notes matches whose mere presence is a condition.
func (r *Rule) match(name string) {
	switch name {
	case "comment", "tcp", "udp", "sctp", "conntrack", "state", "addrtype", "recent", "statistic", "mark", "nfacct", "physdev", "set":
	default:
		r.Flags |= ByOther
	}
}

func (r *Rule) set(cond Flags, not bool, negated Flags) {
	r.Flags |= cond
	if not {
		r.Flags |= negated
	}
}
