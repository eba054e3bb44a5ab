package kubeproxy

import (
	"strconv"
	"strings"
)

// scanner splits a rule into words: quoted strings with backslash escapes, as iptables-save writes them, and bare words.
type scanner struct {
	rest string
	msg  string // what is wrong, once something is
}

// word returns the next word, or "" at the end.
func (s *scanner) word() string {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\t') {
		s.rest = s.rest[1:]
	}
	if s.rest == "" {
		return ""
	}
	if s.rest[0] == '"' {
		return s.quoted()
	}
	w := s.rest
	if i := strings.IndexByte(w, ' '); i >= 0 {
		w, s.rest = w[:i], w[i+1:]
	} else {
		s.rest = ""
	}
	return w
}

func (s *scanner) quoted() string {
	body := s.rest[1:]
	escaped := false
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			s.rest = body[i+1:]
			if escaped {
				return unescape(body[:i])
			}
			return body[:i]
		}
	}
	s.msg, s.rest = "quoted string without an end", ""
	return ""
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// parse reads the part of a rule after its chain. It returns what is wrong, or "".
// A match that it does not know makes the rule conditional and is otherwise skipped.
func (r *rule) parse(s string) string {
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

func (r *rule) option(sc *scanner, w string, not bool) {
	switch w {
	case "-m", "--match":
		r.match(sc.word())
	case "--comment":
		r.comment = sc.word()
	case "-j", "-g":
		r.target = sc.word()
		if r.target == "" {
			sc.msg = "jump without a target"
		}
	case "-s", "--source":
		r.src = sc.word()
		r.set(condSrc, not, notSrc)
	case "-d", "--destination":
		r.dst = sc.word()
		r.set(condDst, not, notDst)
	case "-p", "--protocol":
		r.proto = sc.word()
		r.set(condProto, not, condOther)
	case "--dport", "--dports", "--destination-port":
		r.dport = sc.word()
		r.set(condDport, not, condOther)
	case "-i", "--in-interface":
		r.extra().iface = sc.word()
		r.set(condIface, not, notIface)
	case "--physdev-in":
		r.extra().iface = sc.word()
		r.set(condIface, not, notIface)
	case "--ctstate", "--state":
		r.detail = sc.word()
		r.set(condState, not, condOther)
	case "--mark":
		r.detail = sc.word()
		r.set(condMark, not, notMark)
	case "--src-type":
		r.set(condSrcType, not || sc.word() != "LOCAL", condOther)
	case "--dst-type":
		r.set(condDstType, not || sc.word() != "LOCAL", condOther)
	case "--match-set":
		r.detail = sc.word()
		sc.word() // src, dst
		r.set(condSet, not, condOther)
	default:
		r.extension(sc, w)
	}
}

// extension reads the options of statistic, recent and the targets.
func (r *rule) extension(sc *scanner, w string) {
	switch w {
	case "--mode":
		r.flags |= condStat
		if sc.word() != "random" {
			r.flags |= condOther
		}
	case "--probability":
		r.flags |= condStat
		p, err := strconv.ParseFloat(sc.word(), 64)
		if err != nil || !(p >= 0 && p <= 1) {
			sc.msg = "probability is not a number from 0 to 1"
			return
		}
		r.prob = p
	case "--rcheck", "--update":
		r.flags |= condRecent
	case "--seconds":
		n, err := strconv.ParseInt(sc.word(), 10, 32)
		if err != nil {
			sc.msg = "seconds is not a number"
		}
		r.extra().seconds = int32(n)
	case "--name":
		r.extra().recent = sc.word()
	case "--set":
		r.flags |= recentSet
	case "--reap":
		r.flags |= recentReap
	case "--mask":
		if m := sc.word(); m != "255.255.255.255" && m != "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" {
			r.flags |= recentOdd
		}
	case "--rdest":
		r.flags |= recentOdd
	case "--nfacct-name", "--reject-with", "--log-prefix":
		sc.word()
	case "--rsource":
	case "--to-destination", "--set-xmark", "--set-mark", "--or-mark", "--xor-mark", "--and-mark":
		v := sc.word()
		switch w {
		case "--or-mark":
			v = v + "/" + v
		case "--xor-mark":
			v += "/0x0"
		}
		r.detail = v
		if v == ":0" || v == "" {
			r.flags |= cannotRead
		}
	case "--random-fully":
		r.flags |= randomFully
	case "[unsupported":
		r.flags |= cannotRead
	default:
		if r.target == "" && strings.HasPrefix(w, "-") {
			r.flags |= condOther
		}
	}
}

// match notes matches whose mere presence is a condition.
func (r *rule) match(name string) {
	switch name {
	case "comment", "tcp", "udp", "sctp", "conntrack", "state", "addrtype", "recent", "statistic", "mark", "nfacct", "physdev", "set":
	default:
		r.flags |= condOther
	}
}

func (r *rule) set(cond flags, not bool, negated flags) {
	r.flags |= cond
	if not {
		r.flags |= negated
	}
}

// markMask takes "0x4000/0x4000" apart.
func markMask(s string) (mark, mask uint64, ok bool) {
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
