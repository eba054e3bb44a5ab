package proxy

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// useUp calls every function that a command may call with a ruleset. None of them may panic,
// whatever the rules contain.
func useUp(t *testing.T, set *ruleset.Set) {
	t.Helper()
	eps := endpoints(t, sliceText("", "10.0.0.1 rs @n1 +a", "10.0.0.2 st"))
	for _, o := range []Options{{}, {Services: npService(t, 30080), Endpoints: eps, NodeName: "n1"}} {
		rep := Judge([]*ruleset.Set{set}, o)
		for _, f := range rep.Findings {
			if f.Name == "" || f.Message == "" {
				t.Fatalf("finding without a name or message: %+v", f)
			}
		}
	}
}

// FuzzRules uses the corpora of the parser's fuzz targets.
func FuzzRules(f *testing.F) {
	f.Add(hashed(formIPv6))
	f.Add(readFile(f, "nft-1.36-form.json"))
	corpora, err := filepath.Glob("../../ruleset/testdata/fuzz/*/*")
	if err != nil || len(corpora) == 0 {
		f.Fatalf("reading the parser's corpus: %v", err)
	}
	for _, name := range corpora {
		entry, err := os.ReadFile(name)
		require.NoError(f, err)
		_, quoted, _ := strings.Cut(strings.TrimSpace(string(entry)), "string(")
		text, err := strconv.Unquote(strings.TrimSuffix(quoted, ")"))
		if err != nil {
			f.Fatalf("%s: %v", name, err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if set, err := ruleset.Parse("", strings.NewReader(text)); err == nil {
			useUp(t, set)
		}
	})
}

func FuzzEndpointSlices(f *testing.F) {
	f.Add(sliceText("", "10.0.0.1 rs @n1 +a *n1", "10.0.0.2 st"))
	f.Add(`{"items": [{"kind": "EndpointSlice", "endpoints": [{"addresses": []}, {"addresses": ["::1"], "hints": {}}], "ports": [{}, ` +
		`{"port": 1}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		eps, err := LoadEndpointSlices(strings.NewReader(text))
		if err != nil {
			return
		}
		rep := Judgment{Families: map[string]bool{"ip": true},
			Services: []Service{{Name: "prod/np", Protocol: "tcp", Family: "ip", Endpoints: []Endpoint{{Address: "10.0.0.1:80"}}}}}
		out := NewCollector()
		compareAPI(&rep, &Options{Services: npService(t, 0), Endpoints: eps, NodeName: "n1"}, out.List, out)
	})
}

// FuzzDamage damages valid rules in many places at once, and so reaches deeper than arbitrary text.
func FuzzDamage(f *testing.F) {
	var lines []string
	for _, l := range strings.Split(readFile(f, "iptables-save.txt")+hashed(formIPv6), "\n") {
		if !strings.Contains(l, "kube-dns") {
			lines = append(lines, l)
		}
	}
	f.Add([]byte{0, 1, 40, 1, 1, 50, 2, 1, 60, 3, 1, 70, 4, 1, 80, 5, 1, 90})
	f.Fuzz(func(t *testing.T, program []byte) {
		damaged := slices.Clone(lines)
		for ; len(program) >= 3 && len(damaged) > 2; program = program[3:] {
			i := (int(program[1])<<8 | int(program[2])) % (len(damaged) - 1)
			words := strings.Split(damaged[i], " ")
			k := int(program[0]>>3) % len(words)
			switch program[0] & 7 {
			case 0:
				damaged = slices.Delete(damaged, i, i+1)
			case 1:
				damaged = slices.Insert(damaged, i, damaged[i])
			case 2:
				damaged[i], damaged[i+1] = damaged[i+1], damaged[i]
			case 3:
				damaged[i] = strings.Join(slices.Delete(words, k, k+1), " ")
			case 4:
				words[k] = altered(words[k])
				damaged[i] = strings.Join(words, " ")
			case 5:
				words[k] = strings.Fields(damaged[(i*7)%len(damaged)] + " x")[0]
				damaged[i] = strings.Join(words, " ")
			case 6:
				other := strings.Split(damaged[(i+k+1)%len(damaged)], " ")
				words[len(words)-1] = other[len(other)-1]
				damaged[i] = strings.Join(words, " ")
			case 7:
				damaged = append(damaged[:i], damaged[min(i+k, len(damaged)-1):]...)
			}
		}
		if set, err := ruleset.Parse("", strings.NewReader(strings.Join(damaged, "\n")+"\n")); err == nil {
			useUp(t, set)
		}
	})
}
