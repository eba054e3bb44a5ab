package ruleset_test

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"nodegate/internal/assert"
	"nodegate/internal/input"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

const testdata = "../../internal/audit/proxy/testdata/"

// TestMalformed checks that malformed input yields an error of the right kind that names the line.
func TestMalformed(t *testing.T) {
	text := string(require.ReadFile(t, testdata+"iptables-save.txt"))
	listing := string(require.ReadFile(t, testdata+"nft-list-ruleset.json"))
	const save = "; run `iptables-save > rules.txt`, ip6tables-save for IPv6, or `nft -j list ruleset`"
	for _, u := range []struct {
		name, text, want string
		kind             error
	}{
		{"empty", "", "the input is empty: no tables, no rules; save them as root with iptables-save or nft -j list ruleset", input.ErrUnknown},
		{"blank", " \n\n", "the input is empty: no tables, no rules; save them as root with iptables-save or nft -j list ruleset", input.ErrUnknown},
		{"truncated", text[:len(text)/2], "line 524: the input is truncated: table nat has no COMMIT", input.ErrUnreadable},
		{"long line", "*nat\n-A X " + strings.Repeat("x", 10<<20), "line 2: line is longer than 1 MiB", input.ErrUnreadable},
		{"long line with a newline", "*nat\n:X - [0:0]\n-A X " + strings.Repeat("x", 10<<20) + "\nCOMMIT\n",
			"line 3: line is longer than 1 MiB", input.ErrUnreadable},
		{"binary", "*nat\n:X - [0:0]\n\x00\x01\x02\n", "line 3: not text: the line contains a zero byte", input.ErrUnreadable},
		{"a prompt alone", "# iptables-save\n$ iptables-save\n", `line 2: not a line of iptables-save: "$ iptables-save"` + save, input.ErrUnreadable},
		{"prose", "hello\n", `line 1: not a line of iptables-save: "hello"` + save, input.ErrUnreadable},
		{"no-break spaces", "*nat\n:X - [0:0]\n-A X\u00a0-j ACCEPT\n",
			"line 3: an editor, a chat or a browser has changed the line: \"-A X\\u00a0-j ACCEPT\"", input.ErrUnreadable},
		{"rule outside of a table", "-A INPUT -j ACCEPT\n", `line 1: this is only a part: rule outside of a table: "-A INPUT -j ACCEPT"`,
			input.ErrUnreadable},
		{"chain outside of a table", ":X - [0:0]\n", `line 1: this is only a part: chain outside of a table: "X - [0:0]"`, input.ErrUnreadable},
		{"chain without policy", "*nat\n:X\n", `line 2: chain without a policy: "X"`, input.ErrUnreadable},
		{"chain twice", "*nat\n:X - [0:0]\n:X - [0:0]\nCOMMIT\n", "line 3: chain X is declared twice in table nat", input.ErrUnreadable},
		{"table inside a table", "*nat\n*filter\n", `line 2: table "filter" begins before the COMMIT of table nat`, input.ErrUnreadable},
		{"unknown table", "*nope\n", `line 1: unknown iptables table "nope"`, input.ErrUnreadable},
		{"COMMIT without a table", "COMMIT\n", "line 1: COMMIT outside of a table", input.ErrUnreadable},
		{"another command", "*nat\n-I X -j ACCEPT\n", `line 2: not a line of iptables-save: "-I X -j ACCEPT"` + save, input.ErrUnreadable},
		{"unclosed counters", "*nat\n[1:2 -A X\n", `line 2: the counters lack a closing bracket: "[1:2 -A X"`, input.ErrUnreadable},
		{"unclosed quotes", "*nat\n:X - [0:0]\n-A X -m comment --comment \"abc\n",
			`line 3: a quoted string lacks its closing quote: "-A X -m comment --comment \"abc"`, input.ErrUnreadable},
		{"probability", "*nat\n-A X -m statistic --mode random --probability NaN -j Y\n",
			`line 2: --probability must be a number from 0 to 1: "-A X -m statistic --mode random --probability NaN -j Y"`,
			input.ErrUnreadable},
		{"many saves", strings.Repeat("*nat\nCOMMIT\n", 65), "line 129: more than 64 saves in one input", input.ErrUnknown},

		{"JSON of another tool", `{"items": []}`,
			"line 1: this JSON is not from `nft -j list ruleset`: its first key is \"items\", not \"nftables\"", input.ErrUnreadable},
		{"JSON cut off", listing[:len(listing)/2], "line 1: cut off: the JSON is incomplete", input.ErrUnreadable},
		{"JSON with an error", "{\"nftables\": [\n{]}",
			"line 2: not JSON: invalid character ']' looking for beginning of object key string", input.ErrUnreadable},
		{"JSON of another shape", `{"nftables": [{"rule": 3}]}`, "line 1: rule must not be a number", input.ErrUnreadable},
		{"rule of a missing chain", `{"nftables": [{"rule": {"family": "ip", "table": "kube-proxy", "chain": "x", "expr": []}}]}`,
			`line 1: the rule's chain "x" is missing from the listing`, input.ErrUnreadable},
		{"not an object", `["nftables"]`, `line 1: not a line of iptables-save: "[\"nftables\"]"` + save, input.ErrUnreadable},
	} {
		t.Run(u.name, func(t *testing.T) {
			_, err := ruleset.Parse("", strings.NewReader(u.text))
			require.True(t, err != nil, "no error")
			assert.Equal(t, err.Error(), u.want, "error")
			assert.True(t, errors.Is(err, u.kind), "%v is not %v", err, u.kind)
		})
	}
}

func TestReadError(t *testing.T) {
	for _, head := range []string{"", "*nat\n", `{"nftables": [`} {
		_, err := ruleset.Parse("", io.MultiReader(strings.NewReader(head), iotest.ErrReader(io.ErrClosedPipe)))
		assert.True(t, errors.Is(err, input.ErrUnknown) && errors.Is(err, io.ErrClosedPipe), "%q: %v", head, err)
	}
}

// TestSmallReads checks that a reader that returns one byte at a time gives the same rules.
func TestSmallReads(t *testing.T) {
	for _, file := range []string{"iptables-save.txt", "nft-list-ruleset.json"} {
		text := string(require.ReadFile(t, testdata+file))
		once, err := ruleset.Parse(file, strings.NewReader(text))
		require.NoError(t, err)
		bytewise, err := ruleset.Parse(file, iotest.OneByteReader(strings.NewReader(text)))
		require.NoError(t, err)
		assert.True(t, reflect.DeepEqual(once, bytewise), "%s: the models differ", file)
	}
}

func TestEndlessInput(t *testing.T) {
	_, err := ruleset.Parse("", io.MultiReader(strings.NewReader("*nat\n:X - [0:0]\n"), &repeat{line: "-A X -j X\n"}))
	assert.True(t, errors.Is(err, input.ErrUnknown), "%v", err)
}

// repeat is an endless reader of one line.
type repeat struct{ line string }

func (r *repeat) Read(p []byte) (int, error) {
	return copy(p, strings.Repeat(r.line, len(p)/len(r.line))), nil
}

// TestByteOrderMark checks that a byte order mark, which editors put in front, is ignored.
func TestByteOrderMark(t *testing.T) {
	for _, file := range []string{"iptables-save.txt", "nft-list-ruleset.json"} {
		text := string(require.ReadFile(t, testdata+file))
		plain, err := ruleset.Parse(file, strings.NewReader(text))
		require.NoError(t, err)
		marked, err := ruleset.Parse(file, strings.NewReader("\ufeff"+text))
		assert.True(t, err == nil && reflect.DeepEqual(plain, marked), "%s: %v, or another model", file, err)
	}
}
