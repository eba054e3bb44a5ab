package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestRefusedStays: the error of a failed reload is reported until the policy can be read, not only until the next round.
func TestRefusedStays(t *testing.T) {
	name := filepath.Join(t.TempDir(), "p.hcl")
	write := func() {
		require.NoError(t, os.WriteFile(name, []byte("sysctl \"net.ipv4.ip_forward\" { value = 1 }\n"), 0o600))
	}
	write()
	w, err := newWatcher(&policyInput{root: "/", policies: []string{name}}, io.Discard)
	require.NoError(t, err)
	defer w.Host.Close()
	defer w.Observer.Close()
	for _, c := range []struct {
		reread, there, good bool
	}{{false, true, true}, {true, false, false}, {false, false, false}, {false, true, false}, {true, true, true}, {false, true, true}} {
		_ = os.Remove(name)
		if c.there {
			write()
		}
		if p, err := w.Policy(c.reread); (err == nil) != c.good || p == nil {
			t.Errorf("%+v: %v, %v", c, p, err)
		}
	}
}

// TestRefusedFacts: while the policy's files are missing or have a mistake, the last good policy is evaluated with the current facts.
func TestRefusedFacts(t *testing.T) {
	name := filepath.Join(t.TempDir(), "p.hcl")
	text := `link "flannel" {
		match { name = "flannel*" }
		mtu  = 1400
		when = cni.name == "flannel"
	}`
	write := func(text string) {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	for _, c := range []struct{ what, broken, first string }{
		{"gone", "", "p.hcl"}, {"a mistake", "link {\n", "p.hcl:1"},
	} {
		write(text)
		w, err := newWatcher(&policyInput{root: "/", policies: []string{name}}, io.Discard)
		require.NoError(t, err)
		defer w.Host.Close()
		defer w.Observer.Close()
		node := func(cni string) {
			w.Observer.Files = (&hosttest.Machine{Files: map[string]string{"/etc/cni/net.d/10.conf": `{"name": "` + cni + `"}`}}).Host().Files
		}
		node("none")
		if p, err := w.Policy(false); err != nil || p.Links[0].Applies() {
			t.Fatalf("%s: at first: %+v, %v", c.what, p, err)
		}
		if write(c.broken); c.broken == "" {
			_ = os.Remove(name)
		}
		for _, round := range []struct {
			reread bool
			cni    string
		}{{true, "none"}, {false, "flannel"}, {false, "none"}, {true, "flannel"}} {
			node(round.cni)
			p, err := w.Policy(round.reread)
			assert.ErrorContains(t, err, c.first, "%s, %+v", c.what, round)
			assert.True(t, p != nil && p.Links[0].Applies() == (round.cni == "flannel"), "%s, %+v: %+v", c.what, round, p)
		}
	}
}
