package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"nodegate/internal/input"
)

func TestReadError(t *testing.T) {
	for _, read := range []func(io.Reader) error{
		func(r io.Reader) error { _, err := LoadEndpointSlices(r); return err },
		func(r io.Reader) error { _, err := LoadServices(r); return err },
	} {
		err := read(iotest.ErrReader(io.ErrClosedPipe))
		if !errors.Is(err, input.ErrUnknown) || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%v", err)
		}
	}
}

// TestManyChains judges hostile but well-formed input of almost as many lines as are read: chains, and jumps in a loop through
// all.
func TestManyChains(t *testing.T) {
	const n = 490_000
	var b bytes.Buffer
	b.WriteString("*nat\n")
	for i := range n {
		fmt.Fprintf(&b, ":KUBE-SVC-%016d - [0:0]\n", i)
	}
	b.WriteString("COMMIT\n")
	rep := Judge(mustParse(t, b.String()), Options{})
	if len(rep.Findings) == 0 || len(rep.Findings) > 2*maxPerKind {
		t.Errorf("%d findings", len(rep.Findings))
	}
	b.Reset()
	b.WriteString("*nat\n")
	for i := range n / 4 {
		fmt.Fprintf(&b, ":L%d - [0:0]\n", i)
	}
	for i := range n / 4 {
		fmt.Fprintf(&b, "-A L%d -j L%d\n", i, (i+1)%(n/4))
	}
	b.WriteString(":KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -j L0\nCOMMIT\n")
	rep = Judge(mustParse(t, b.String()), Options{})
	if got := names(rep.Findings); got != "kubeproxy.table.missing kubeproxy.canary.missing kubeproxy.jump.missing kubeproxy.jump.missing" {
		t.Errorf("findings %.300q", got)
	}
}

// TestManyElements judges hostile input in which each element of a map is looked up in a set of the
// same size. A linear search takes a minute.
func TestManyElements(t *testing.T) {
	const n = 100_000
	var ips, portals []string
	for i := range n {
		ip := fmt.Sprintf("10.%d.%d.%d", 96+i>>16, i>>8&255, i&255)
		ips = append(ips, `"`+ip+`"`)
		portals = append(portals, fmt.Sprintf(`[{"elem": {"val": {"concat": ["%s", "tcp", 80]}, "comment": "ns/s%d"}}, {"drop": null}]`, ip, i))
	}
	rules := mustParse(t, `{"nftables": [{"set": {"family": "ip", "table": "kube-proxy", "name": "cluster-ips", "elem": [`+
		strings.Join(ips, ", ")+`]}}, {"map": {"family": "ip", "table": "kube-proxy", "name": "no-endpoint-services", "elem": [`+
		strings.Join(portals, ", ")+`]}}]}`)
	rep := Judge(rules, Options{})
	if i := indexService(&rep, "ns/s7"); len(rep.Services) != n || i < 0 || rep.Services[i].ClusterIP != "10.96.0.7" {
		t.Errorf("%d Services", len(rep.Services))
	}
}

func TestListErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "the input is empty"},
		{"[]", `line 1: EndpointSlice: expected "{"`},
		{`{"kind": "Pod"}`, "line 1: not a list of EndpointSlices: no items"},
		{"{\n\"items\": [{\"kind\": \"Pod\"}]}", "none of 1 items has the kind EndpointSlice"},
		{"{\n\"items\": [{\"kind\": \"EndpointSlice\", \"endpoints\": 3}]}", "line 2: endpoints must not be a number"},
		{"{\n\"items\": [\n", "line 2: cut off: the JSON is incomplete"},
		{`{"nftables": [{}]}`, "line 1: not a list of EndpointSlices: no items"},
	} {
		if _, err := LoadEndpointSlices(strings.NewReader(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
	if _, err := LoadServices(strings.NewReader(readFile(t, "endpointslices.json"))); err == nil {
		t.Error("EndpointSlices were accepted as Services")
	}
}
