package config_test

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/config"
)

func TestParseUdev(t *testing.T) {
	rules, err := config.ParseUdev("f", []byte("# c\nACTION==\"add|change\", ENV{A}!=\"x\" , \\\n  NAME=\"a\\\"b\"\nTAG+=\"s\"\n"+
		"nonsense\nKERNEL=\"open\nATTR{a=\"1\"\n"))
	want := []config.UdevRule{
		{Tokens: []config.UdevToken{{"ACTION", "", "==", "add|change"}, {"ENV", "A", "!=", "x"}, {"NAME", "", "=", `a"b`}}, File: "f",
			Line: 2},
		{Tokens: []config.UdevToken{{"TAG", "", "+=", "s"}}, File: "f", Line: 4},
		{Tokens: []config.UdevToken{{"ATTR", "a", "=", "1"}}, File: "f", Line: 7},
	}
	assert.Diff(t, rules, want)
	const wrong = "f:5: not a rule\nf:6: not a rule"
	if err == nil || err.Error() != wrong {
		t.Errorf("%v, want %s", err, wrong)
	}
}

func TestUdevUnmanaged(t *testing.T) {
	veth := config.Device{Name: "cali0", Kind: "veth"}
	for _, c := range []struct {
		what, rules string
		at          string
		unmanaged   bool
		doubt       int
	}{
		{"nothing", "", "", false, 0},
		{"by driver", `ENV{ID_NET_DRIVER}=="veth", ENV{NM_UNMANAGED}="1"`, "/etc/udev/rules.d/a.rules:1", true, 0},
		{"reverted", "ENV{NM_UNMANAGED}=\"1\"\nKERNEL==\"cali*\", ENV{NM_UNMANAGED}=\"0\"", "/etc/udev/rules.d/a.rules:2", false, 0},
		{"another kind", `ENV{DEVTYPE}=="vxlan", ENV{NM_UNMANAGED}="1"`, "", false, 0},
		{"skipped by a label", "KERNEL==\"cali*\", GOTO=\"e\"\nENV{NM_UNMANAGED}=\"1\"\nLABEL=\"e\"", "", false, 0},
		{"uncertain", `ATTR{address}=="02:*", ENV{NM_UNMANAGED}="1"`, "", false, 1},
		{"uncertain, then certain", "ATTR{address}==\"02:*\", ENV{NM_UNMANAGED}=\"1\"\nENV{NM_UNMANAGED}=\"1\"",
			"/etc/udev/rules.d/a.rules:2", true, 0},
		{"uncertain, same result", "ENV{NM_UNMANAGED}=\"1\"\nATTR{address}==\"02:*\", ENV{NM_UNMANAGED}=\"1\"", "/etc/udev/rules.d/a.rules:1",
			true, 0},
		{"only on removal", `ACTION=="remove", ENV{NM_UNMANAGED}="1"`, "", false, 0},
	} {
		by, unmanaged, doubt, err := config.UdevUnmanaged(tree{"/etc/udev/rules.d/a.rules": c.rules + "\n"}, veth)
		at := ""
		if by.File != "" {
			at = by.At()
		}
		if err != nil || at != c.at || unmanaged != c.unmanaged || len(doubt) != c.doubt {
			t.Errorf("%s: by %q, unmanaged %t, %d in doubt, %v", c.what, at, unmanaged, len(doubt), err)
		}
	}
}

func FuzzParseUdev(f *testing.F) {
	f.Add([]byte("SUBSYSTEM!=\"net\", GOTO=\"e\"\nENV{ID_NET_DRIVER}==\"veth\", ENV{NM_UNMANAGED}=\"1\"\nLABEL=\"e\"\n"))
	f.Add([]byte("A{b}:=e\"\\\"\", C+=\"d\"\\\n,#"))
	f.Fuzz(func(t *testing.T, text []byte) {
		rules, _ := config.ParseUdev("f", text)
		for _, r := range rules {
			within(t, text, r.Line)
			for _, token := range r.Tokens {
				if token.Key == "" || strings.ContainsAny(token.Key, "\"{") {
					t.Fatalf("%+v in %q", token, text)
				}
			}
		}
		_, _, _, _ = config.UdevUnmanaged(tree{"/etc/udev/rules.d/a.rules": string(text)}, config.Device{Name: "veth0", Kind: "veth"})
	})
}
