package ruleset_test

import (
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"nodegate/internal/input"
	"nodegate/internal/ruleset"
)

const testdata = "../../internal/proxyrules/testdata/"

func readFile(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What is not rules is an error that names the line, of one of two kinds.
func TestMalformed(t *testing.T) {
	save := readFile(t, testdata+"iptables-save.txt")
	listing := readFile(t, testdata+"nft-list-ruleset.json")
	for _, u := range []struct {
		name, text, want string
		kind             error
	}{
		{"empty", "", "the input has no rules: not even a table", input.ErrUnknown},
		{"blank", " \n\n", "the input has no rules: not even a table", input.ErrUnknown},
		{"cut off", save[:len(save)/2], "line 524: cut off: table nat has no COMMIT", input.ErrUnreadable},
		{"long line", "*nat\n-A X " + strings.Repeat("x", 10<<20), "line 2: line is longer than 1 MiB", input.ErrUnreadable},
		{"long line with an end", "*nat\n:X - [0:0]\n-A X " + strings.Repeat("x", 10<<20) + "\nCOMMIT\n",
			"line 3: line is longer than 1 MiB", input.ErrUnreadable},
		{"binary", "*nat\n:X - [0:0]\n\x00\x01\x02\n", "line 3: not text: the line contains a zero byte", input.ErrUnreadable},
		{"gzip", "\x1f\x8b\x08\x01abc", "line 1: not text: compressed data", input.ErrUnreadable},
		{"prose", "hello\n", `line 1: not a line of iptables-save: "hello"`, input.ErrUnreadable},
		{"an iptables -L listing", "Chain INPUT (policy ACCEPT)\n",
			`line 1: not a line of iptables-save: "Chain INPUT (policy ACCEPT)"`, input.ErrUnreadable},
		{"nft's own text", "table ip kube-proxy {\n", "line 1: this is what nft prints for people; give what `nft -j list ruleset` prints",
			input.ErrUnreadable},
		{"no table", "-A INPUT -j ACCEPT\n", `line 1: rule outside of a table: "-A INPUT -j ACCEPT"`, input.ErrUnreadable},
		{"chain outside", ":X - [0:0]\n", `line 1: chain outside of a table: "X - [0:0]"`, input.ErrUnreadable},
		{"chain without policy", "*nat\n:X\n", `line 2: chain without a policy: "X"`, input.ErrUnreadable},
		{"chain twice", "*nat\n:X - [0:0]\n:X - [0:0]\nCOMMIT\n", "line 3: chain X is declared twice in table nat", input.ErrUnreadable},
		{"table in table", "*nat\n*filter\n", `line 2: table "filter" begins before table nat has ended with COMMIT`, input.ErrUnreadable},
		{"unknown table", "*nope\n", `line 1: no table of iptables: "nope"`, input.ErrUnreadable},
		{"COMMIT alone", "COMMIT\n", "line 1: COMMIT outside of a table", input.ErrUnreadable},
		{"another command", "*nat\n-I X -j ACCEPT\n", `line 2: not a line of iptables-save: "-I X -j ACCEPT"`, input.ErrUnreadable},
		{"counters without end", "*nat\n[1:2 -A X\n", `line 2: counters without an end: "[1:2 -A X"`, input.ErrUnreadable},
		{"quotes without end", "*nat\n:X - [0:0]\n-A X -m comment --comment \"abc\n",
			`line 3: quoted string without an end: "-A X -m comment --comment \"abc"`, input.ErrUnreadable},
		{"probability", "*nat\n-A X -m statistic --mode random --probability NaN -j Y\n",
			`line 2: probability is not a number from 0 to 1: "-A X -m statistic --mode random --probability NaN -j Y"`,
			input.ErrUnreadable},
		{"many saves", strings.Repeat("*nat\nCOMMIT\n", 65), "line 129: more than 64 saves in one input", input.ErrUnknown},

		{"JSON of another tool", `{"items": []}`,
			`line 1: not the JSON of nft -j list ruleset: it begins with "items", not "nftables"`, input.ErrUnreadable},
		{"JSON cut off", listing[:len(listing)/2], "line 1: cut off: the JSON is incomplete", input.ErrUnreadable},
		{"JSON with an error", "{\"nftables\": [\n{]}",
			"line 2: not JSON: invalid character ']' looking for beginning of object key string", input.ErrUnreadable},
		{"JSON of another shape", `{"nftables": [{"rule": 3}]}`, "line 1: rule must not be a number", input.ErrUnreadable},
		{"rule without chain", `{"nftables": [{"rule": {"family": "ip", "table": "kube-proxy", "chain": "x", "expr": []}}]}`,
			`line 1: a rule of chain "x", which the listing does not have`, input.ErrUnreadable},
		{"not an object", `["nftables"]`, `line 1: not a line of iptables-save: ""`, input.ErrUnreadable},
	} {
		t.Run(u.name, func(t *testing.T) {
			_, err := ruleset.Parse("", strings.NewReader(u.text))
			if err == nil {
				t.Fatal("no error")
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
	for _, head := range []string{"", "*nat\n", `{"nftables": [`} {
		_, err := ruleset.Parse("", io.MultiReader(strings.NewReader(head), iotest.ErrReader(io.ErrClosedPipe)))
		if !errors.Is(err, input.ErrUnknown) || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%q: %v", head, err)
		}
	}
}

// A pipe that hands out a byte at a time gives the same rules.
func TestSmallReads(t *testing.T) {
	for _, file := range []string{"iptables-save.txt", "nft-list-ruleset.json"} {
		text := readFile(t, testdata+file)
		once, err := ruleset.Parse(file, strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		bytewise, err := ruleset.Parse(file, iotest.OneByteReader(strings.NewReader(text)))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(once, bytewise) {
			t.Errorf("%s: another model", file)
		}
	}
}

func TestEndlessInput(t *testing.T) {
	_, err := ruleset.Parse("", io.MultiReader(strings.NewReader("*nat\n:X - [0:0]\n"), &repeat{line: "-A X -j X\n"}))
	if !errors.Is(err, input.ErrUnknown) {
		t.Errorf("%v", err)
	}
}

// repeat is an endless text.
type repeat struct{ line string }

func (r *repeat) Read(p []byte) (int, error) {
	return copy(p, strings.Repeat(r.line, len(p)/len(r.line))), nil
}
