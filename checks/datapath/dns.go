package datapath

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// query is a DNS question as it goes into a datagram. Every attempt has a source
// port of its own, so that they may share its identifier.
type query struct {
	packet []byte
	header dnsmessage.Header
}

// newQuery asks for the IPv4 addresses of a name, which is taken as absolute.
func newQuery(name string) (query, error) {
	absolute, err := dnsmessage.NewName(strings.TrimSuffix(name, ".") + ".")
	if err != nil {
		return query{}, fmt.Errorf("DNS name %q: %w", name, err)
	}
	q := query{header: dnsmessage.Header{ID: uint16(rand.Uint32()), RecursionDesired: true}}
	m := dnsmessage.Message{Header: q.header, Questions: []dnsmessage.Question{
		{Name: absolute, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	if q.packet, err = m.Pack(); err != nil {
		return query{}, fmt.Errorf("DNS name %q: %w", name, err)
	}
	return q, nil
}

// answered reports whether a datagram answers the query, and with which code: any
// answer shows that the data path works.
func (q query) answered(datagram []byte) (rcode string, ok bool) {
	var p dnsmessage.Parser
	h, err := p.Start(datagram)
	if err != nil || !h.Response || h.ID != q.header.ID {
		return "", false
	}
	return strings.TrimPrefix(h.RCode.String(), "RCode"), true
}
