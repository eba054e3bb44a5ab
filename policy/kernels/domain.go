package kernels

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// Answer is a kernel's answer to a value that is written.
type Answer int

// The answers. Unknown is not recorded.
const (
	Unknown Answer = iota
	Stored
	Refused
	Rounded // stored as another value
	ReadOnly
)

// Domain holds the answers of one kernel to the values of one parameter. The recorder writes it as words, separated by semicolons:
//
//	r             read-only
//	w             write-only
//	?             not recorded
//	x             a value has taken the machine down
//	*             any word
//	=a,b          of TriedWords, these
//	1..5!3        a number: the limits, and the refused ones between them; !p refuses all but powers of two
//	1..9~+4:0..8  a number and its rounding; see FitRounding
//	<             refuses the numbers in falling order
//	-             cannot be set back to its value after boot
//	^1            cannot be changed after 1
type Domain struct {
	Version string // of the kernel: "6.1"
	words   []string
	key     string // of the parameter
}

// TriedWords lists the words that the recorder writes to a parameter that is not a number.
func TriedWords() []string {
	return []string{
		"0", "1", "2", "3", "4", "-1", "on", "off", "yes", "no", "true", "default", "disabled", "enabled", "none", "always", "never",
		"node", "zone",
	}
}

// Domains returns the domains of a parameter, one for each kernel that has it.
func (c *Catalogue) Domains(key string) []Domain { return c.domains[perInterface(key)] }

// Versions returns the versions of the kernels for which domains are recorded, oldest first: "5.10".
func (c *Catalogue) Versions() []string {
	var all []string
	for _, release := range c.Probed {
		all = append(all, versionOf(release))
	}
	return all
}

func versionOf(release string) string {
	parts := strings.SplitN(release, ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}

// OneWay reports whether the kernel does not accept the value before this one again.
func (d Domain) OneWay(value string) bool {
	if slices.Contains(d.words, "-") {
		answer, _ := d.Stores(value)
		return answer == Stored
	}
	return slices.Contains(d.words, "^"+value)
}

// Stores returns the kernel's answer to a value, and the value that it stores if that is known.
func (d Domain) Stores(value string) (Answer, string) {
	if answer, stored, known := notRecorded(d.key, value); known {
		return answer, stored
	}
	fields := strings.Fields(value)
	var kept []string
	answer, n := Stored, 0
	for _, w := range d.words {
		switch {
		case w == "r":
			return ReadOnly, ""
		case w == "*":
			return Stored, value
		case strings.HasPrefix(w, "="):
			if !slices.Contains(TriedWords(), value) {
				return Unknown, ""
			}
			if !slices.Contains(strings.Split(w[1:], ","), value) {
				return Refused, ""
			}
			return Stored, value
		case w == "<":
			if !rising(fields) {
				return Refused, ""
			}
		case strings.Contains(w, ".."):
			if n == len(fields) {
				return Unknown, ""
			}
			v, number := parseNumber(fields[n])
			if n++; !number {
				return Unknown, ""
			}
			switch is, stored := parseRange(w).store(v); is {
			case Refused:
				return Refused, ""
			case Unknown:
				answer = Unknown
			default:
				kept = append(kept, stored.String())
				if is == Rounded && answer == Stored {
					answer = Rounded
				}
			}
		}
	}
	if n == 0 || n != len(fields) || answer == Unknown {
		return Unknown, ""
	}
	return answer, strings.Join(kept, " ")
}

// Limits returns the smallest and the largest number that the kernel accepts, if the parameter is one number.
func (d Domain) Limits() (low, high *big.Int, known bool) {
	var all []numberRange
	for _, w := range d.words {
		if strings.Contains(w, "..") {
			all = append(all, parseRange(w))
		}
	}
	if len(all) != 1 {
		return nil, nil, false
	}
	return all[0].low, all[0].high, true
}

// Accepted returns the range of each number of the parameter, for a message: "1024 to 65535", or "" if none is recorded.
func (d Domain) Accepted() string {
	var all []string
	for _, w := range d.words {
		if strings.Contains(w, "..") {
			r := parseRange(w)
			all = append(all, fmt.Sprintf("%d to %d", r.low, r.high))
		}
	}
	return strings.Join(slices.Compact(all), "; ")
}

func rising(fields []string) bool {
	var before *big.Int
	for _, f := range fields {
		v, ok := new(big.Int).SetString(f, 0)
		if ok && before != nil && v.Cmp(before) < 0 {
			return false
		}
		before = v
	}
	return true
}

// numberRange is the domain of one number.
type numberRange struct {
	low, high *big.Int
	refused   []string
	rounds    bool
	round     rounding // nil if it is unknown
	first     *big.Int // of the numbers that it explains; nil for all
	last      *big.Int
}

func parseRange(word string) numberRange {
	word, how, rounds := strings.Cut(word, "~")
	word, refused, _ := strings.Cut(word, "!")
	r := numberRange{rounds: rounds, refused: strings.Split(refused, "!")}
	r.low, r.high = limits(word)
	if name, result, known := strings.Cut(how, ":"); known && name != "?" {
		result, explained, part := strings.Cut(result, "@")
		low, high := limits(result)
		r.round = clamped(parseRounding(name), low, high)
		if part {
			r.first, r.last = limits(explained)
		}
	}
	return r
}

func limits(word string) (low, high *big.Int) {
	first, last, _ := strings.Cut(word, "..")
	low, _ = new(big.Int).SetString(first, 10)
	high, _ = new(big.Int).SetString(last, 10)
	return low, high
}

func (r numberRange) store(v *big.Int) (Answer, *big.Int) {
	switch {
	case r.low == nil || r.high == nil || v.BitLen() > 64 || v.Sign() < 0 && !v.IsInt64(): // tried are 64 bits
		return Unknown, nil
	case slices.Contains(r.refused, "p") && parseRounding("p")(v).Cmp(v) != 0:
		return Refused, nil
	case v.Cmp(r.low) < 0 || v.Cmp(r.high) > 0 || slices.Contains(r.refused, v.String()):
		return Refused, nil
	case !r.rounds:
		return Stored, v
	case r.round == nil || r.first != nil && (v.Cmp(r.first) < 0 || v.Cmp(r.last) > 0):
		return Unknown, nil
	}
	stored := r.round(v)
	if stored.Cmp(v) == 0 {
		return Stored, v
	}
	return Rounded, stored
}
