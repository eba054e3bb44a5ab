package datapath

import (
	"math/rand/v2"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// query is a DNS query as sent in a datagram. All attempts share its identifier because each has its own source port.
type query struct {
	packet []byte
	header dnsmessage.Header
}

// newQuery returns a query for the address of the API's Service, which most clusters' DNS has; any response code counts.
func newQuery() (query, error) {
	q := query{header: dnsmessage.Header{ID: uint16(rand.Uint32()), RecursionDesired: true}}
	name := dnsmessage.MustNewName("kubernetes.default.svc.cluster.local.")
	m := dnsmessage.Message{Header: q.header, Questions: []dnsmessage.Question{
		{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	var err error
	q.packet, err = m.Pack()
	return q, err
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
