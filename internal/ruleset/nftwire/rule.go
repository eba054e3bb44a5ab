package nftwire

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"nodegate/internal/nlattr"
	"nodegate/internal/ruleset"
)

// rule decodes one rule. It tracks the content of each register and collects the rule's text.
type rule struct {
	*Decoder
	out       *ruleset.NFTRule
	registers [16]term // registers of four bytes
	protocol  bool     // the rule matches a protocol: nft prints ports as ports of that protocol
	depends   string   // the protocol that the last expression compared
	before    int      // length of words before that comparison
	words     []byte
}

// term is the content of a register.
type term struct {
	words string // as nft prints it: "ip saddr"
	kind  kind
	size  int // in bytes; 0 if the register is empty
	whole int // size of the field, if only a part was loaded

	masked    bool
	mask, xor []byte

	value   []byte   // value of an immediate expression
	modulus int      // modulus of numgen
	mapped  *wireSet // map from which the term is chosen
}

// decode calls do with each expression.
func (r *rule) decode(expressions []byte, do func(name string, b []byte) error) error {
	for b := expressions; len(b) > 0; {
		_, one, rest, err := nlattr.Next(b)
		if err != nil {
			return err
		}
		b = rest
		a, err := splitAttributes(one)
		if err != nil {
			return err
		}
		if err := do(string(a.text(unix.NFTA_EXPR_NAME)), a[unix.NFTA_EXPR_DATA]); err != nil {
			return fmt.Errorf("expression %.20q: %w", a.text(unix.NFTA_EXPR_NAME), err)
		}
	}
	return nil
}

func (r *rule) addWords(words ...string) {
	for _, w := range words {
		if len(r.words) > 0 {
			r.words = append(r.words, ' ')
		}
		r.words = append(r.words, w...)
	}
}

var errForm = errors.New("unsupported form")

func (r *rule) readExpression(name string, b []byte) error {
	if name != "payload" && name != "cmp" {
		r.depends = ""
	}
	switch name {
	case "counter":
		return nil
	case "limit", "log", "reject":
		r.addWords(name)
		return nil
	case "payload", "meta", "ct", "fib", "numgen":
		return r.readLoad(name, b)
	case "bitwise":
		return r.readBitwise(b)
	case "cmp":
		return r.readComparison(b)
	case "lookup":
		return r.readLookup(b)
	case "immediate":
		return r.readImmediate(b)
	case "masq":
		return r.readMasquerade(b)
	case "nat":
		return r.readNAT(b)
	case "dynset":
		return r.readUpdate(b)
	}
	return errors.New("unsupported expression")
}

// slot returns the index of the first four-byte register of a register.
func slot(register uint64) (int, error) {
	switch {
	case register >= unix.NFT_REG_1 && register <= unix.NFT_REG_4:
		return int(register-unix.NFT_REG_1) * 4, nil
	case register >= unix.NFT_REG32_00 && register <= unix.NFT_REG32_15:
		return int(register - unix.NFT_REG32_00), nil
	}
	return 0, fmt.Errorf("unknown register %d", register)
}

func slots(bytes int) int { return (bytes + 3) / 4 }

func (r *rule) setRegister(register uint64, t term) error {
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

// getRegister returns the content of a register.
func (r *rule) getRegister(register uint64) (*term, error) {
	at, err := slot(register)
	if err != nil {
		return nil, err
	}
	if r.registers[at].size == 0 {
		return nil, fmt.Errorf("register %d is read before it is loaded", register)
	}
	return &r.registers[at], nil
}

// readBitwise reads (register & mask) ^ xor.
func (r *rule) readBitwise(b []byte) error {
	const op = 6 // NFTA_BITWISE_OP; 0 is the only operation of older kernels
	a, err := readAttributes(b, maskOf(unix.NFTA_BITWISE_SREG, unix.NFTA_BITWISE_DREG, unix.NFTA_BITWISE_LEN, unix.NFTA_BITWISE_MASK,
		unix.NFTA_BITWISE_XOR), maskOf(op))
	if err != nil {
		return err
	}
	t, err := r.getRegister(a.number(unix.NFTA_BITWISE_SREG))
	if err != nil {
		return err
	}
	masked := *t
	masked.masked = true
	if masked.mask, _, err = r.readData(a[unix.NFTA_BITWISE_MASK]); err != nil {
		return err
	}
	if masked.xor, _, err = r.readData(a[unix.NFTA_BITWISE_XOR]); err != nil {
		return err
	}
	if a.number(op) != 0 || t.masked || t.words == "" || len(masked.mask) != t.size || len(masked.xor) != t.size {
		return errForm
	}
	return r.setRegister(a.number(unix.NFTA_BITWISE_DREG), masked)
}

// readOperands returns the operands and the operator of a comparison.
func (r *rule) readOperands(b []byte) (t *term, op uint64, value []byte, err error) {
	a, err := readAttributes(b, maskOf(unix.NFTA_CMP_SREG, unix.NFTA_CMP_OP, unix.NFTA_CMP_DATA), 0)
	if err != nil {
		return nil, 0, nil, err
	}
	if t, err = r.getRegister(a.number(unix.NFTA_CMP_SREG)); err != nil {
		return nil, 0, nil, err
	}
	value, _, err = r.readData(a[unix.NFTA_CMP_DATA])
	return t, a.number(unix.NFTA_CMP_OP), value, err
}

func (r *rule) readComparison(b []byte) error {
	t, code, value, err := r.readOperands(b)
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
	left, op, right, err := t.formatComparison(op, value)
	if err != nil {
		return err
	}
	before := len(r.words)
	r.addWords(ruleset.MatchText(left, op, right))
	if t.kind == proto {
		r.protocol = true
		if op == "==" {
			r.depends, r.before = right, before
		}
	}
	return nil
}

// formatComparison returns a comparison in nft's syntax.
func (t *term) formatComparison(op string, value []byte) (left, o, right string, err error) {
	switch {
	case t.kind == ctState || t.kind == ctStatus: // matches if one of the flags is set
		if !t.masked || op != "!=" || !isZero(value) || !isZero(t.xor) {
			return "", "", "", errForm
		}
		right, err = t.kind.text(t.mask)
		return t.words, "in", right, err
	case t.kind == mark && t.masked:
		if !isZero(t.xor) {
			return "", "", "", errForm
		}
		mask, _ := mark.text(t.mask)
		right, err = mark.text(value)
		return t.words + " & " + mask, op, right, err
	case t.masked || t.whole > t.size:
		if t.kind != ipv4 && t.kind != ipv6 || len(value) != t.size || t.masked && !isZero(t.xor) {
			return "", "", "", errForm
		}
		bits := t.size * 8
		if t.masked {
			if bits = leadingOnes(t.mask); bits < 0 {
				return "", "", "", errForm
			}
		}
		right, err = t.kind.text(append(slices.Clone(value), make([]byte, t.whole-t.size)...))
		return t.words, op, fmt.Sprint(right, "/", bits), err
	}
	right, err = t.kind.text(value)
	return t.words, op, right, err
}

func isZero(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }

// leadingOnes returns the number of leading ones of a mask, or -1 if more ones follow after a zero.
func leadingOnes(mask []byte) int {
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

// readImmediate loads a value for a later expression, or reads the rule's verdict.
func (r *rule) readImmediate(b []byte) error {
	a, err := readAttributes(b, maskOf(unix.NFTA_IMMEDIATE_DREG, unix.NFTA_IMMEDIATE_DATA), 0)
	if err != nil {
		return err
	}
	value, v, err := r.readData(a[unix.NFTA_IMMEDIATE_DATA])
	if err != nil {
		return err
	}
	if register := a.number(unix.NFTA_IMMEDIATE_DREG); register != unix.NFT_REG_VERDICT {
		return r.setRegister(register, term{value: value, size: len(value)})
	}
	switch {
	case v.way != "":
		r.out.Target = v.chain
		r.addWords(v.way, v.chain)
	case v.word != "":
		r.addWords(v.word)
	default:
		return errForm
	}
	return nil
}
