package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestRefusedStays: a policy that could not be read again is said until it can be, not until the next round.
func TestRefusedStays(t *testing.T) {
	name := filepath.Join(t.TempDir(), "p.hcl")
	write := func() {
		if err := os.WriteFile(name, []byte("sysctl \"net.ipv4.ip_forward\" { value = 1 }\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	w, err := newWatcher(&options{root: "/", policies: []string{name}}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Host.Close()
	defer w.Observer.Close()
	for _, c := range []struct {
		reread, there, good bool
	}{{false, true, true}, {true, false, false}, {false, false, false}, {false, true, false}, {true, true, true}, {false, true, true}} {
		_ = os.Remove(name)
		if c.there {
			write()
		}
		if _, err := w.Policy(c.reread); (err == nil) != c.good {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
