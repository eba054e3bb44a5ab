package config_test

import (
	"strings"
	"testing"

	"nodegate/host/config"
)

// within fails where a parser names a line that the text does not have.
func within(t *testing.T, text []byte, line int) {
	t.Helper()
	if n := strings.Count(string(text), "\n") + 1; line < 1 || line > n {
		t.Fatalf("line %d of %d in %q", line, n, text)
	}
}

func FuzzParseSysctl(f *testing.F) {
	f.Add([]byte("# c\nnet.ipv4.ip_forward = 1\n-net/ipv4/conf/eth0.100/rp_filter\nnet.ipv4.conf.*.rp_filter=[\n=\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, _ := config.ParseSysctl("f", text)
		for _, s := range all {
			within(t, text, s.Line)
			if s.Key == "" || strings.HasPrefix(s.Key, "/") || strings.HasPrefix(s.Key+"/", "../") {
				t.Fatalf("key %q in %q", s.Key, text)
			}
		}
		files := tree{"/etc/sysctl.d/a.conf": "x" + string(text), "/etc/sysctl.conf": string(text)}
		boot, _ := config.SystemdSysctls(files)
		later, _ := config.ProcpsSysctls(files)
		for _, s := range all {
			if w, ok := later.Winner(s.Key); ok && !w.Glob() && w.Key != s.Key {
				t.Fatalf("%s won %s", w.Key, s.Key)
			}
			boot.Winner(s.Key)
			if !s.Exclude && len(later.Setters(s.Key)) == 0 {
				t.Fatalf("nobody sets %q in %q", s.Key, text)
			}
		}
	})
}

func FuzzParseModprobe(f *testing.F) {
	f.Add([]byte("blacklist a-b\ninstall c \\\n/bin/false # x\noptions d e=f\nalias g* h\n#\\\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, _ := config.ParseModprobe("f", text)
		for _, m := range all {
			within(t, text, m.Line)
			if m.Module == "" || strings.Contains(m.Module, "-") {
				t.Fatalf("%+v in %q", m, text)
			}
			m.Disables()
			config.Install(all, m.Module)
		}
	})
}

func FuzzParseINI(f *testing.F) {
	f.Add([]byte("[Match]\nOriginalName=!a* b\\\n#\nc\n[Link]\nMACAddressPolicy=persistent\n"))
	f.Add([]byte("[Network]\nManageForeignRoutes=no\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, _ := config.ParseINI("f", text)
		for _, e := range all {
			within(t, text, e.Line)
			if e.Key == "" || e.Section == "" {
				t.Fatalf("%+v in %q", e, text)
			}
			config.Last(all, e.Section, e.Key)
			config.List(all, e.Section, e.Key)
		}
		config.LinkFor([]config.LinkConfig{{File: "f", Entries: all}}, config.Device{Name: "veth0", Kind: "veth"})
	})
}

func FuzzParseOSRelease(f *testing.F) {
	f.Add([]byte("ID=debian\nID_LIKE=\"a b\"\nX='y'\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		o, _ := config.ParseOSRelease("f", text)
		o.Like("debian")
	})
}
