package nftwire

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"nodegate/internal/nlattr"
	"nodegate/internal/ruleset"
)

// rule decodes one rule: what each register holds, and what has been said.
type rule struct {
	*Decoder
	out       *ruleset.NFTRule
	registers [16]term // of four bytes
	protocol  bool     // there is a match on it: nft prints a port as one of that protocol
	words     []byte
	to, end   int // where in them the place is that dnat leads to
}

// term is what a register holds.
type term struct {
	words string // as nft prints it, "ip saddr"
	kind  kind
	size  int // bytes; 0 for nothing
	whole int // of the field, where less of it was loaded

	masked    bool
	mask, xor []byte

	value   []byte // of an immediate
	modulus int    // of numgen
	random  bool
	mapped  *wireSet // what the term chooses from
}

// decode calls do for each expression.
func (r *rule) decode(expressions []byte, do func(name string, b []byte) error) error {
	for b := expressions; len(b) > 0; {
		_, one, rest, err := nlattr.Next(b)
		if err != nil {
			return err
		}
		b = rest
		a, err := split(one)
		if err != nil {
			return err
		}
		if err := do(string(a.text(unix.NFTA_EXPR_NAME)), a[unix.NFTA_EXPR_DATA]); err != nil {
			return fmt.Errorf("expression %.20q: %w", a.text(unix.NFTA_EXPR_NAME), err)
		}
	}
	return nil
}

func (r *rule) say(words ...string) {
	for _, w := range words {
		if len(r.words) > 0 {
			r.words = append(r.words, ' ')
		}
		r.words = append(r.words, w...)
	}
}

var errForm = errors.New("not of a form that is known")

func (r *rule) expression(name string, b []byte) error {
	switch name {
	case "counter":
		return nil
	case "limit", "log":
		r.out.Other = true
		r.say(name)
		return nil
	case "reject":
		r.out.Verdict = name
		r.say(name)
		return nil
	case "payload", "meta", "ct", "fib", "numgen":
		return r.load(name, b)
	case "bitwise":
		return r.bitwise(b)
	case "cmp":
		return r.compare(b)
	case "lookup":
		return r.lookup(b)
	case "immediate":
		return r.immediate(b)
	case "masq":
		return r.masquerade(b)
	case "nat":
		return r.translate(b)
	case "dynset":
		return r.update(b)
	}
	return errors.New("not known")
}

// slot returns the register of four bytes at which a register begins.
func slot(register uint64) (int, error) {
	switch {
	case register >= unix.NFT_REG_1 && register <= unix.NFT_REG_4:
		return int(register-unix.NFT_REG_1) * 4, nil
	case register >= unix.NFT_REG32_00 && register <= unix.NFT_REG32_15:
		return int(register - unix.NFT_REG32_00), nil
	}
	return 0, fmt.Errorf("register %d is not known", register)
}

func slots(bytes int) int { return (bytes + 3) / 4 }

func (r *rule) put(register uint64, t term) error {
	at, err := slot(register)
	if err != nil {
		return err
	}
	if t.size <= 0 || at+slots(t.size) > len(r.registers) {
		return errForm
	}
	clear(r.registers[at : at+slots(t.size)])
	r.registers[at] = t
	return nil
}

// get returns what a register holds.
func (r *rule) get(register uint64) (*term, error) {
	at, err := slot(register)
	if err != nil {
		return nil, err
	}
	if r.registers[at].size == 0 {
		return nil, fmt.Errorf("register %d is not loaded", register)
	}
	return &r.registers[at], nil
}

// bitwise reads ( register & mask ) ^ xor.
func (r *rule) bitwise(b []byte) error {
	const op = 6 // NFTA_BITWISE_OP: 0 is what Linux has always had
	a, err := only(b, set(unix.NFTA_BITWISE_SREG, unix.NFTA_BITWISE_DREG, unix.NFTA_BITWISE_LEN, unix.NFTA_BITWISE_MASK,
		unix.NFTA_BITWISE_XOR), set(op))
	if err != nil {
		return err
	}
	t, err := r.get(a.number(unix.NFTA_BITWISE_SREG))
	if err != nil {
		return err
	}
	masked := *t
	masked.masked = true
	if masked.mask, _, err = r.data(a[unix.NFTA_BITWISE_MASK]); err != nil {
		return err
	}
	if masked.xor, _, err = r.data(a[unix.NFTA_BITWISE_XOR]); err != nil {
		return err
	}
	if a.number(op) != 0 || t.masked || t.words == "" || len(masked.mask) != t.size || len(masked.xor) != t.size {
		return errForm
	}
	return r.put(a.number(unix.NFTA_BITWISE_DREG), masked)
}

// operands returns what a comparison compares.
func (r *rule) operands(b []byte) (t *term, op uint64, value []byte, err error) {
	a, err := only(b, set(unix.NFTA_CMP_SREG, unix.NFTA_CMP_OP, unix.NFTA_CMP_DATA), 0)
	if err != nil {
		return nil, 0, nil, err
	}
	if t, err = r.get(a.number(unix.NFTA_CMP_SREG)); err != nil {
		return nil, 0, nil, err
	}
	value, _, err = r.data(a[unix.NFTA_CMP_DATA])
	return t, a.number(unix.NFTA_CMP_OP), value, err
}

func (r *rule) compare(b []byte) error {
	t, code, value, err := r.operands(b)
	if err != nil {
		return err
	}
	op := ""
	switch code {
	case unix.NFT_CMP_EQ:
		op = "=="
	case unix.NFT_CMP_NEQ:
		op = "!="
	}
	if op == "" || t.words == "" || t.modulus != 0 {
		return errForm
	}
	left, op, right, err := t.compared(op, value)
	if err != nil {
		return err
	}
	r.protocol = r.protocol || t.kind == proto
	r.say(r.out.Match(left, op, right))
	return nil
}

// compared returns a comparison in nft's words.
func (t *term) compared(op string, value []byte) (left, o, right string, err error) {
	switch {
	case t.kind == ctState || t.kind == ctStatus: // one of the flags is set
		if !t.masked || op != "!=" || !zero(value) || !zero(t.xor) {
			return "", "", "", errForm
		}
		right, err = t.kind.text(t.mask)
		return t.words, "in", right, err
	case t.kind == mark && t.masked:
		if !zero(t.xor) {
			return "", "", "", errForm
		}
		mask, _ := mark.text(t.mask)
		right, err = mark.text(value)
		return t.words + " & " + mask, op, right, err
	case t.masked || t.whole > t.size:
		if t.kind != ipv4 && t.kind != ipv6 || len(value) != t.size || t.masked && !zero(t.xor) {
			return "", "", "", errForm
		}
		bits := t.size * 8
		if t.masked {
			if bits = ones(t.mask); bits < 0 {
				return "", "", "", errForm
			}
		}
		right, err = t.kind.text(append(slices.Clone(value), make([]byte, t.whole-t.size)...))
		return t.words, op, fmt.Sprint(right, "/", bits), err
	}
	right, err = t.kind.text(value)
	return t.words, op, right, err
}

func zero(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }

// ones returns how many ones a mask begins with, -1 where others follow.
func ones(mask []byte) int {
	n := 0
	for i := range len(mask) * 8 {
		if mask[i/8]&(0x80>>(i%8)) != 0 {
			if i != n {
				return -1
			}
			n++
		}
	}
	return n
}

// immediate reads a value for a later expression, or where the packet goes.
func (r *rule) immediate(b []byte) error {
	a, err := only(b, set(unix.NFTA_IMMEDIATE_DREG, unix.NFTA_IMMEDIATE_DATA), 0)
	if err != nil {
		return err
	}
	value, v, err := r.data(a[unix.NFTA_IMMEDIATE_DATA])
	if err != nil {
		return err
	}
	if register := a.number(unix.NFTA_IMMEDIATE_DREG); register != unix.NFT_REG_VERDICT {
		return r.put(register, term{value: value, size: len(value)})
	}
	switch {
	case v.way != "":
		r.out.Target = v.chain
	case v.word == "continue":
		r.out.Other = true
	case v.word != "":
		r.out.Verdict = v.word
	default:
		return errForm
	}
	if v.way != "" {
		r.say(v.way, v.chain)
	} else {
		r.say(v.word)
	}
	return nil
}
