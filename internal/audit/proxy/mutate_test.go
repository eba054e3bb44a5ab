package proxy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// oneDamage judges a recording with one damage. It must give at most one finding. A damage may give
// none if it makes the rule unreadable or does no harm that the rules show.
func oneDamage(t *testing.T, what, text string) (found bool) {
	t.Helper()
	set, err := ruleset.Parse("", strings.NewReader(text))
	if err != nil {
		return true
	}
	rep := Judge([]*ruleset.Set{set}, Options{})
	if len(rep.Findings) > 1 {
		t.Errorf("%s: %s", what, names(rep.Findings))
	}
	return len(rep.Findings) == 1
}

// mostFound fails unless the given fraction of damages is found.
func mostFound(t *testing.T, what string, found, tried int, want float64) {
	t.Helper()
	t.Logf("%s: %d of %d found", what, found, tried)
	if float64(found) < want*float64(tried) {
		t.Errorf("%s: only %d of %d found", what, found, tried)
	}
}

func TestEveryLineDamaged(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(readFile(t, "iptables-save.txt")), "\n")
	join := func(l ...[]string) string { return strings.Join(slices.Concat(l...), "\n") + "\n" }
	deleted, tried := 0, 0
	for i, l := range lines {
		if !strings.HasPrefix(l, "-A") && !strings.HasPrefix(l, ":KUBE") {
			continue
		}
		tried++
		if oneDamage(t, "delete "+l, join(lines[:i], lines[i+1:])) {
			deleted++
		}
		oneDamage(t, "repeat "+l, join(lines[:i+1], lines[i:]))
		if strings.HasPrefix(lines[i+1], "-A") {
			oneDamage(t, "swap "+l, join(lines[:i], []string{lines[i+1], l}, lines[i+2:]))
		}
	}
	mostFound(t, "deleted lines", deleted, tried, 0.98)
}

func TestEveryWordDamaged(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(readFile(t, "iptables-save.txt")), "\n")
	for i, l := range lines {
		if !strings.HasPrefix(l, "-A") || strings.Contains(l, "kube-dns") && i%61 != 0 {
			continue
		}
		words := strings.Split(l, " ")
		try := func(what string, changed ...[]string) {
			broken := slices.Clone(lines)
			broken[i] = strings.Join(slices.Concat(changed...), " ")
			oneDamage(t, what+": "+broken[i], strings.Join(broken, "\n")+"\n")
		}
		for k := 2; k < len(words); k++ { // not the chain's own name: no tool writes a rule without its chain
			if k+1 < len(words) && strings.HasPrefix(words[k], "-") {
				try("option dropped", words[:k], words[k+2:])
			}
			try("word altered", words[:k], []string{altered(words[k])}, words[k+1:])
			if words[k-1] == "-j" {
				try("target RETURN", words[:k], []string{"RETURN"})
				try("target ACCEPT", words[:k], []string{"ACCEPT"})
			}
		}
	}
}

// altered returns a word with its last letter or digit changed.
func altered(word string) string {
	b := []byte(word)
	for j := len(b) - 1; j >= 0; j-- {
		switch {
		case b[j] >= '0' && b[j] < '9' || b[j] >= 'a' && b[j] < 'z' || b[j] >= 'A' && b[j] < 'Z':
			b[j]++
			return string(b)
		case b[j] == '9' || b[j] == 'z' || b[j] == 'Z':
			b[j]--
			return string(b)
		}
	}
	return word + "x"
}

func TestEveryNFTObjectDamaged(t *testing.T) {
	var doc struct{ Nftables []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(readFile(t, "nft-list-ruleset.json")), &doc))
	objects := doc.Nftables
	try := func(what string, list ...[]json.RawMessage) bool {
		var text []string
		for _, o := range slices.Concat(list...) {
			text = append(text, string(o))
		}
		return oneDamage(t, what, `{"nftables": [`+strings.Join(text, ",")+"]}")
	}
	deleted, tried := 0, 0
	for i, o := range objects {
		text := string(o)
		if !strings.Contains(text, `"table": "kube-proxy"`) || strings.Contains(text, "kube-dns") && i%61 != 0 {
			continue
		}
		tried++
		if try("delete "+text, objects[:i], objects[i+1:]) {
			deleted++
		}
		if strings.HasPrefix(text, `{"map"`) || strings.HasPrefix(text, `{"set"`) {
			for _, changed := range jsonChanges(text, "elem") {
				try("change "+changed, objects[:i], []json.RawMessage{json.RawMessage(changed)}, objects[i+1:])
			}
		}
		if !strings.HasPrefix(text, `{"rule"`) {
			continue
		}
		try("repeat "+text, objects[:i+1], objects[i:])
		for _, changed := range jsonChanges(text, "expr") {
			try("change "+changed, objects[:i], []json.RawMessage{json.RawMessage(changed)}, objects[i+1:])
		}
	}
	mostFound(t, "deleted objects", deleted, tried, 0.95)
}

// jsonChanges returns variants of an object: without each item of one of its lists, and with each
// string and number in it altered.
func jsonChanges(object, field string) []string {
	var o map[string]map[string]any
	if err := json.Unmarshal([]byte(object), &o); err != nil {
		return nil
	}
	var list []string
	kind := slices.Collect(maps.Keys(o))[0]
	put := func(expr []any) {
		changed := maps.Clone(o[kind])
		changed[field] = expr
		text, err := json.Marshal(map[string]any{kind: changed})
		if err == nil {
			list = append(list, string(text))
		}
	}
	expr, _ := o[kind][field].([]any)
	for i := range expr {
		put(slices.Concat(expr[:i], expr[i+1:]))
	}
	for n := 0; ; n++ {
		at := n
		changed := alterLeaf(expr, &at)
		if at >= 0 {
			return list
		}
		put(changed.([]any))
	}
}

// alterLeaf returns a copy with leaf number *at altered. *at becomes negative if that leaf exists.
func alterLeaf(v any, at *int) any {
	switch v := v.(type) {
	case []any:
		c := make([]any, len(v))
		for i := range v {
			c[i] = alterLeaf(v[i], at)
		}
		return c
	case map[string]any:
		c := map[string]any{}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			c[k] = alterLeaf(v[k], at)
		}
		return c
	}
	*at--
	if *at != -1 {
		return v
	}
	switch v := v.(type) {
	case string:
		return altered(v)
	case float64:
		return v + 1
	}
	return fmt.Sprint(v)
}
