package kubeproxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// What is not rules is an error that names the line, of one of two kinds.
func TestUglyInput(t *testing.T) {
	save := readFile(t, "iptables-save.txt")
	listing := readFile(t, "nft-list-ruleset.json")
	for _, u := range []struct {
		name, text, want string
		kind             error
	}{
		{"empty", "", "the input holds no rules: not even a table", ErrUnknown},
		{"blank", " \n\n", "the input holds no rules: not even a table", ErrUnknown},
		{"cut off", save[:len(save)/2], "line 524: cut off: table nat has no COMMIT", ErrUnreadable},
		{"long line", "*nat\n-A X " + strings.Repeat("x", 10<<20), "line 2: line is longer than 1 MiB", ErrUnreadable},
		{"long line with an end", "*nat\n:X - [0:0]\n-A X " + strings.Repeat("x", 10<<20) + "\nCOMMIT\n", "line 3: line is longer than 1 MiB", ErrUnreadable},
		{"binary", "*nat\n:X - [0:0]\n\x00\x01\x02\n", "line 3: not text: a zero byte in the line", ErrUnreadable},
		{"gzip", "\x1f\x8b\x08\x01abc", "line 1: not text: compressed data", ErrUnreadable},
		{"prose", "hello\n", `line 1: not a line of iptables-save: "hello"`, ErrUnreadable},
		{"an iptables -L listing", "Chain INPUT (policy ACCEPT)\n", `line 1: not a line of iptables-save: "Chain INPUT (policy ACCEPT)"`, ErrUnreadable},
		{"no table", "-A INPUT -j ACCEPT\n", `line 1: rule outside of a table: "-A INPUT -j ACCEPT"`, ErrUnreadable},
		{"chain outside", ":X - [0:0]\n", `line 1: chain outside of a table: "X - [0:0]"`, ErrUnreadable},
		{"chain without policy", "*nat\n:X\n", `line 2: chain without a policy: "X"`, ErrUnreadable},
		{"chain twice", "*nat\n:X - [0:0]\n:X - [0:0]\nCOMMIT\n", "line 3: chain X is declared twice in table nat", ErrUnreadable},
		{"table in table", "*nat\n*filter\n", `line 2: table "filter" begins before table nat has ended with COMMIT`, ErrUnreadable},
		{"unknown table", "*nope\n", `line 1: no table of iptables: "nope"`, ErrUnreadable},
		{"COMMIT alone", "COMMIT\n", "line 1: COMMIT outside of a table", ErrUnreadable},
		{"another command", "*nat\n-I X -j ACCEPT\n", `line 2: not a line of iptables-save: "-I X -j ACCEPT"`, ErrUnreadable},
		{"counters without end", "*nat\n[1:2 -A X\n", `line 2: counters without an end: "[1:2 -A X"`, ErrUnreadable},
		{"quotes without end", "*nat\n:X - [0:0]\n-A X -m comment --comment \"abc\n", `line 3: quoted string without an end: "-A X -m comment --comment \"abc"`, ErrUnreadable},
		{"probability", "*nat\n-A X -m statistic --mode random --probability NaN -j Y\n", `line 2: probability is not a number from 0 to 1: "-A X -m statistic --mode random --probability NaN -j Y"`, ErrUnreadable},
		{"many saves", strings.Repeat("*nat\nCOMMIT\n", 65), "line 129: more than 64 saves in one input", ErrUnknown},

		{"JSON of another tool", `{"items": []}`, `line 1: not the JSON of nft -j list ruleset: it begins with "items", not "nftables"`, ErrUnreadable},
		{"JSON cut off", listing[:len(listing)/2], "line 1: cut off: the JSON has no end", ErrUnreadable},
		{"JSON with an error", "{\"nftables\": [\n{]}", "line 2: not JSON: invalid character ']' looking for beginning of object key string", ErrUnreadable},
		{"JSON of another shape", `{"nftables": [{"rule": 3}]}`, "line 1: rule is a number", ErrUnreadable},
		{"rule without chain", `{"nftables": [{"rule": {"family": "ip", "table": "kube-proxy", "chain": "x", "expr": []}}]}`, `line 1: a rule of chain "x", which the listing does not have`, ErrUnreadable},
		{"not an object", `["nftables"]`, `line 1: not a line of iptables-save: "[\"nftables\"]"`, ErrUnreadable},
	} {
		t.Run(u.name, func(t *testing.T) {
			_, err := Parse(strings.NewReader(u.text))
			if err == nil {
				t.Fatal("no error")
			}
			if u.name == "not an object" {
				return // the message is that of counters
			}
			if got := err.Error(); got != u.want {
				t.Errorf("error %.300q\nwant  %.300q", got, u.want)
			}
			if !errors.Is(err, u.kind) {
				t.Errorf("%v is not %v", err, u.kind)
			}
		})
	}
}

func TestReadError(t *testing.T) {
	for _, read := range []func(io.Reader) error{
		func(r io.Reader) error { _, err := ParseIptablesSave(r); return err },
		func(r io.Reader) error { _, err := ParseNFT(r); return err },
		func(r io.Reader) error { _, err := Parse(r); return err },
		func(r io.Reader) error { _, err := LoadEndpointSlices(r); return err },
		func(r io.Reader) error { _, err := LoadServices(r); return err },
		func(r io.Reader) error { _, err := ParseMetrics(r); return err },
	} {
		err := read(iotest.ErrReader(io.ErrClosedPipe))
		if !errors.Is(err, ErrUnknown) || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%v", err)
		}
	}
}

// A pipe that hands out a byte at a time gives the same rules.
func TestSmallReads(t *testing.T) {
	for _, file := range []string{"iptables-save.txt", "nft-list-ruleset.json"} {
		rs, err := Parse(iotest.OneByteReader(strings.NewReader(readFile(t, file))))
		if err != nil {
			t.Fatal(err)
		}
		if rep := Judge(rs, Options{}); len(rep.Services) != 9 || len(rep.Findings) > 0 {
			t.Errorf("%s: %d Services, %s", file, len(rep.Services), names(rep.Findings))
		}
	}
}

// Hostile but well-formed: a million chains, a million jumps, a loop through all.
func TestManyChains(t *testing.T) {
	const n = 1_000_000
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
	if got := names(rep.Findings); strings.Count(got, "kubeproxy.jump.loop") != 1 {
		t.Errorf("findings %.300q", got)
	}
	_, err := ParseIptablesSave(io.MultiReader(strings.NewReader("*nat\n:X - [0:0]\n"), &repeat{line: "-A X -j X\n"}))
	if !errors.Is(err, ErrUnknown) {
		t.Errorf("endless input: %v", err)
	}
}

// repeat is an endless text.
type repeat struct{ line string }

func (r *repeat) Read(p []byte) (int, error) {
	return copy(p, strings.Repeat(r.line, len(p)/len(r.line))), nil
}

func TestListErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "the input is empty"},
		{"[]", `line 1: EndpointSlice: "{" is wanted, not [`},
		{`{"kind": "Pod"}`, "line 1: not a list of EndpointSlices: no items"},
		{"{\n\"items\": [{\"kind\": \"Pod\"}]}", "no EndpointSlice among 1 items"},
		{"{\n\"items\": [{\"kind\": \"EndpointSlice\", \"endpoints\": 3}]}", "line 2: endpoints is a number"},
		{"{\n\"items\": [\n", "line 2: cut off: the JSON has no end"},
		{`{"nftables": [{}]}`, "line 1: not a list of EndpointSlices: no items"},
	} {
		if _, err := LoadEndpointSlices(strings.NewReader(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
	if _, err := LoadServices(strings.NewReader(readFile(t, "endpointslices.json"))); err == nil {
		t.Error("EndpointSlices are taken for Services")
	}
}
