package signature_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"

	"nodegate/internal/signature"
)

// TestProvenance: a statement that is signed, and speaks of exactly what the list names.
func TestProvenance(t *testing.T) {
	key, private, err := minisign.GenerateKey(rand.Reader)
	must(t, err)
	list := []signature.Sum{{Name: "a", SHA256: sumOf("a")}, {Name: signature.ProvenanceName, SHA256: sumOf("p")}}
	file := func(name, sum string) signature.Resource {
		return signature.Resource{Name: name, Digest: map[string]string{"sha256": sum}}
	}
	for _, c := range []struct {
		what, want string
		subject    []signature.Resource
		predicate  string
		differs    bool
	}{
		{"as it is", "", []signature.Resource{file("a", sumOf("a"))}, signature.PredicateType, false},
		{"another sum", "the sum of a is", []signature.Resource{file("a", sumOf("b"))}, signature.PredicateType, true},
		{"no digest", "the sum of a is ,", []signature.Resource{{Name: "a"}}, signature.PredicateType, true},
		{"a file less", "says nothing of a", nil, signature.PredicateType, true},
		{"a file more", "names b,", []signature.Resource{file("a", sumOf("a")), file("b", sumOf("b"))}, signature.PredicateType, true},
		{"another predicate", "want ", []signature.Resource{file("a", sumOf("a"))}, "https://slsa.dev/provenance/v0.2", false},
	} {
		dir := t.TempDir()
		text, err := json.Marshal(signature.Statement{Type: signature.StatementType, Subject: c.subject, PredicateType: c.predicate})
		must(t, err)
		name := filepath.Join(dir, signature.ProvenanceName)
		must(t, os.WriteFile(name, text, 0o600))
		must(t, os.WriteFile(name+signature.Suffix, minisign.Sign(private, text), 0o600))
		_, err = signature.Provenance(dir, key, list)
		if (c.want == "") != (err == nil) || err != nil &&
			(!strings.Contains(err.Error(), c.want) || errors.Is(err, signature.ErrDiffers) != c.differs) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
		must(t, os.WriteFile(name, append(text, ' '), 0o600))
		if _, err := signature.Provenance(dir, key, list); !errors.Is(err, signature.ErrDiffers) {
			t.Errorf("%s, changed since: %v", c.what, err)
		}
	}
}
