package proxy

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// edit is one change to a recording: to a line of iptables-save text or an object of nft's JSON.
type edit struct {
	op       string // delete, replace, before, after
	line     string // regular expression; must match exactly one line, with the op's "-all" form any number
	old, new string
}

func del(line string) edit            { return edit{op: "delete", line: line} }
func delAll(line string) edit         { return edit{op: "delete-all", line: line} }
func sub(line, old, new string) edit  { return edit{op: "replace", line: line, old: old, new: new} }
func subAll(line, o, new string) edit { return edit{op: "replace-all", line: line, old: o, new: new} }
func before(line, new string) edit    { return edit{op: "before", line: line, new: new} }
func after(line, new string) edit     { return edit{op: "after", line: line, new: new} }

func apply(t testing.TB, lines []string, edits []edit) []string {
	t.Helper()
	for _, e := range edits {
		re := regexp.MustCompile(e.line)
		var out []string
		n := 0
		for _, l := range lines {
			if !re.MatchString(l) {
				out = append(out, l)
				continue
			}
			n++
			switch strings.TrimSuffix(e.op, "-all") {
			case "delete":
			case "replace":
				changed := strings.ReplaceAll(l, e.old, e.new)
				if changed == l {
					t.Fatalf("edit %+v changes nothing in %q", e, l)
				}
				out = append(out, changed)
			case "cut": // from old to the end of the object
				l, _, _ = strings.Cut(l, e.old)
				out = append(out, l+"}}")
			case "before":
				out = append(out, e.new, l)
			case "after":
				out = append(out, l, e.new)
			}
		}
		if n == 0 || n > 1 && !strings.HasSuffix(e.op, "-all") {
			t.Fatalf("edit %+v matches %d lines", e, n)
		}
		lines = out
	}
	return lines
}

func readFile(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return string(text)
}

// editedSave applies edits to iptables-save text.
func editedSave(t testing.TB, text string, edits ...edit) string {
	t.Helper()
	return strings.Join(apply(t, strings.Split(text, "\n"), edits), "\n")
}

// editedNFT applies edits to the objects of an nft listing.
func editedNFT(t testing.TB, text string, edits ...edit) string {
	t.Helper()
	var doc struct{ Nftables []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(text), &doc))
	var lines []string
	for _, o := range doc.Nftables {
		lines = append(lines, string(o))
	}
	return `{"nftables": [` + strings.Join(apply(t, lines, edits), ", ") + "]}\n"
}

// mustParse parses each text into a set.
func mustParse(t testing.TB, texts ...string) []*ruleset.Set {
	t.Helper()
	var sets []*ruleset.Set
	for _, text := range texts {
		set, err := ruleset.Parse("", strings.NewReader(text))
		require.NoError(t, err)
		sets = append(sets, set)
	}
	return sets
}

func endpoints(t testing.TB, text string) *Endpoints {
	t.Helper()
	eps, err := LoadEndpointSlices(strings.NewReader(text))
	require.NoError(t, err)
	return eps
}

func services(t testing.TB, text string) *Services {
	t.Helper()
	svcs, err := LoadServices(strings.NewReader(text))
	require.NoError(t, err)
	return svcs
}

// names joins the names of findings, for comparison with a literal.
func names(findings []Finding) string {
	var list []string
	for _, f := range findings {
		list = append(list, f.Name)
	}
	return strings.Join(list, " ")
}

// wantOne fails unless the report has exactly the named findings, each with its evidence and
// remedy.
func wantOne(t *testing.T, rep Judgment, want string) {
	t.Helper()
	if got := names(rep.Findings); got != want {
		t.Fatalf("findings %q, want %q\n%+v", got, want, rep.Findings)
	}
	for _, f := range rep.Findings {
		if f.Message == "" || f.Remedy == "" {
			t.Errorf("finding without message or remedy: %+v", f)
		}
	}
}
