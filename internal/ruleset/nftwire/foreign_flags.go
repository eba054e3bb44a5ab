package nftwire

import "strconv"

// compareFlags reads a comparison of one byte, or of flags under a mask.
func (r *foreignRule) compareFlags(t *term, op string, value []byte) bool {
	switch {
	case t.masked && !isZero(t.xor):
		return false
	case t.kind == octet:
		if t.masked || len(value) != 1 {
			return false
		}
		n := int(value[0])
		switch op {
		case "<=":
			op, n = "<", n+1
		case ">=":
			op, n = ">", n-1
		case "==":
			op = ""
		}
		r.addWords(t.words)
		if op != "" {
			r.addWords(op)
		}
		r.addWords(strconv.Itoa(n))
		return n >= 0 && n <= 255
	case op != "==" && op != "!=":
		return false
	case t.masked && isZero(value): // one of the flags is set, or none
		list, err := t.kind.text(t.mask)
		if r.addWords(t.words); op == "==" {
			r.addWords("!")
		}
		r.addWords(list)
		return err == nil
	case t.kind != tcpFlags:
		return false
	}
	list, err := t.kind.text(value)
	if r.addWords(t.words); t.masked {
		mask, failed := t.kind.text(t.mask)
		if r.addWords("&", mask); failed != nil {
			return false
		}
	}
	r.addWords(op, list)
	return err == nil
}
