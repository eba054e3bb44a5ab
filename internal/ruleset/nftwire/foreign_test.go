package nftwire_test

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/ruleset"
	"nodegate/internal/ruleset/nftwire"
)

// foreign decodes messages as those of a table that another program made.
func foreign(b []byte) (*nftwire.Foreign, error) {
	f := &nftwire.Foreign{Link: func(uint32) string { return "lo" }}
	table := append([]byte{unix.NFPROTO_INET, 0, 0, 0, 15, 0, unix.NFTA_TABLE_NAME, 0}, "kube-proxy\x00\x00"...)
	if err := f.Add(unix.NFT_MSG_NEWTABLE, table); err != nil {
		return nil, err
	}
	for kind, message := range messages(b) {
		if len(message) > 0 {
			message = slices.Clone(message)
			message[0] = unix.NFPROTO_INET
		}
		if err := f.Add(kind, message); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// FuzzForeign checks that no messages make the decoder of other programs' tables panic, and that a rule
// which it does not know has a word with a question mark: its text is never empty.
func FuzzForeign(f *testing.F) {
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		b := recorded(f, family)
		got, err := foreign(b)
		if err != nil || len(got.Chains()) < 10 || len(got.Tables()) != 1 {
			f.Fatal(err, got.Chains())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := foreign(b)
		if err != nil {
			return
		}
		got.Sets()
		for _, table := range got.Tables() {
			for _, c := range table.Chains {
				for _, r := range c.Rules {
					if strings.Contains(r.Text, "  ") && !strings.Contains(r.Text, "?") {
						t.Fatalf("an empty word: %q", r.Text)
					}
				}
			}
		}
	})
}
