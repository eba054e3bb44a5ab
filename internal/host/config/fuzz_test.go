package config_test

import (
	"strings"
	"testing"

	"nodegate/internal/host/config"
)

// within fails if a parser names a line that the text does not have.
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
				t.Fatalf("nothing sets %q in %q", s.Key, text)
			}
		}
	})
}

func FuzzParseModprobe(f *testing.F) {
	f.Add([]byte("blacklist a-b\ninstall c \\\n/bin/false # x\noptions d e=f\nalias g* h\n#\\\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all := config.ParseModprobe("f", text)
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
		}
		config.LinkFor([]config.LinkConfig{{File: "f", Entries: all}}, config.Device{Name: "veth0", Kind: "veth"})
	})
}

func FuzzFlags(f *testing.F) {
	f.Add("KUBELET_EXTRA_ARGS=\"--config /etc/k.yaml --fail-swap-on=false\" --v\n# --x=1\n")
	f.Fuzz(func(t *testing.T, text string) {
		for flag, value := range config.Flags(text) {
			if strings.ContainsAny(flag+value, " \n\"") || strings.Contains(flag, "=") {
				t.Fatalf("%q=%q in %q", flag, value, text)
			}
		}
	})
}

func FuzzParseNeighbourStat(f *testing.F) {
	f.Add("entries  allocs table_fulls\n00000010 0000 0001\n00000010 0000 000a\n")
	f.Add("entries\n1\n")
	f.Fuzz(func(t *testing.T, text string) {
		entries, full, err := config.ParseNeighbourStat(text)
		if err == nil && !strings.Contains(text, "entries") {
			t.Fatalf("%d, %d out of %q", entries, full, text)
		}
	})
}

func FuzzFirstUnlisted(f *testing.F) {
	f.Add("6443,30000-30100,32000-32767", uint16(30000), uint16(32767))
	f.Fuzz(func(t *testing.T, list string, first, last uint16) {
		n, err := config.FirstUnlisted(list, int(first), int(last))
		if err == nil && first <= last && (n < int(first) || n > int(last)+1) {
			t.Fatalf("%d for %d-%d in %q", n, first, last, list)
		}
	})
}

func FuzzUnmanaged(f *testing.F) {
	f.Add("interface-name:flannel*;interface-name:=tunl0;except:interface-name:~cali[0-9]*;*", "tunl0")
	f.Fuzz(func(t *testing.T, list, name string) {
		specs := strings.FieldsFunc(list, func(r rune) bool { return r == ';' })
		if config.Unmanaged(specs, name) && config.Unmanaged(append(specs, "except:interface-name:="+name), name) {
			t.Fatalf("%q of %q is not excepted", name, list)
		}
	})
}
