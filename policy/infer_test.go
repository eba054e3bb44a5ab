package policy_test

import "testing"

// TestModuleOfUnsure: a module that only a parameter needs of which it is not known whether it applies depends on the same facts.
func TestModuleOfUnsure(t *testing.T) {
	for text, want := range map[string]string{
		`when = os.id == "debian"`: "os.id", `severity = os.id == "debian" ? "warn" : "block"`: "", `when = true`: "",
	} {
		p := load(t, "sysctl \"net.ipv4.vs.conntrack\" {\nvalue = 1\n"+text+"\n}")
		if len(p.Modules) != 1 || p.Modules[0].Unknown != want {
			t.Errorf("%s: %+v", text, p.Modules)
		}
	}
	both := load(t, `
		sysctl "net.ipv4.vs.conntrack" {
		  value = 1
		  when  = os.id == "debian"
		}
		sysctl "net.ipv4.vs.conn_reuse_mode" { value = 0 }`)
	if len(both.Modules) != 1 || !both.Modules[0].Applies() {
		t.Errorf("needed by another one too: %+v", both.Modules)
	}
}
