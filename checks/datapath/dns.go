package datapath

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// query is a DNS query as sent in a datagram. All attempts share its identifier because each has its own source port.
type query struct {
	packet []byte
	header dnsmessage.Header
}

// newQuery returns a query for the IPv4 addresses of a name, which is treated as absolute.
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

// parseAnswer reports whether a datagram answers the query, and returns the response code. Any answer
// proves that the data path works.
func (q query) parseAnswer(datagram []byte) (rcode string, ok bool) {
	var p dnsmessage.Parser
	h, err := p.Start(datagram)
	if err != nil || !h.Response || h.ID != q.header.ID {
		return "", false
	}
	return strings.TrimPrefix(h.RCode.String(), "RCode"), true
}
