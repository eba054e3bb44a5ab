//go:build torture

package torture

import (
	"fmt"
	"strings"
	"testing"
)

// TestReplaceablePolicy gives each file, directory and link on the way to the policy to another user, by its owner or its mode.
// Every verb that acts on the policy must refuse it.
func TestReplaceablePolicy(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "sysctl \"kernel.ostype\" { value = \"Linux\" }\ngate {\n  budget = \"300ms\"\n  interval = \"100ms\"\n}\n")
	layouts := []struct {
		what, setup string
		on          []string // what could be replaced
	}{
		{"a policy", "", []string{"/etc/nodegate", "/etc/nodegate/policy.d", "/etc/nodegate/policy.d/a.hcl"}},
		{"a policy behind a link to its directory", "mkdir /srv/p; mv /etc/nodegate/policy.d /srv/p/d; ln -s /srv/p/d /etc/nodegate/policy.d",
			[]string{"/etc/nodegate", "/srv", "/srv/p", "/srv/p/d", "/srv/p/d/a.hcl"}},
		{"a policy behind a link to its file", "mkdir /etc/nodegate/store; mv /etc/nodegate/policy.d/a.hcl /etc/nodegate/store/a; " +
			"ln -s ../store/a /etc/nodegate/policy.d/a.hcl",
			[]string{"/etc/nodegate/policy.d", "/etc/nodegate/store", "/etc/nodegate/store/a"}},
		{"a policy behind two links", "mkdir -p /srv/one /srv/two; mv /etc/nodegate/policy.d/a.hcl /srv/two/a; ln -s ../two/a /srv/one/a; " +
			"ln -s /srv/one/a /etc/nodegate/policy.d/a.hcl", []string{"/srv/one", "/srv/two", "/srv/two/a", "/srv"}},
	}
	changes := []string{"chmod o+w", "chmod g+w", "chmod a+w", "chown 1234", "chmod 1777 ${p%/*}; chown -h 1234"}
	verbs := [][]string{{"gate"}, {"apply", "--timeout", "5s"}, {"watch"}, {"install", "--dry-run"}}
	type point struct {
		what, setup string
		verb        []string
	}
	var points []point
	for _, l := range layouts {
		for _, verb := range verbs[:2] {
			if out, status, err := r.run(l.setup, verb...); err != nil || status != 0 {
				t.Fatalf("%s of %s, unchanged: status %d, %v: %s", verb[0], l.what, status, err, out)
			}
		}
		for _, p := range l.on {
			for _, change := range changes {
				for _, verb := range verbs {
					if strings.HasPrefix(change, "chmod 1777") && (p == "/srv" || p == "/etc/nodegate") {
						continue // would change a directory of the machine
					}
					points = append(points, point{fmt.Sprintf("%s of %s, %s %s", verb[0], l.what, change, p),
						fmt.Sprintf("%s; p=%s; %s $p", l.setup, p, change), verb})
				}
			}
		}
	}
	var s survey
	forEachPoint(samplePoints(t, len(points), 24), 4, func(i int) {
		p := points[i]
		s.runPoint(t, p.what, func() error {
			out, status, err := r.run(strings.TrimPrefix(p.setup, "; "), p.verb...)
			return judgeHeld(out, status, err, "users other than root")
		})
	})
	s.printCounts(t, "policy that other users may replace")
}

// TestCommandLines starts gates with kernel command lines that only look like break-glass, and with those that are.
func TestCommandLines(t *testing.T) {
	t.Parallel()
	r := newRoom(t, heldPolicy)
	apart := []string{"\u00a0", "\u2003", "\u3000", "\u200b", "\ufeff", "\v", "\f", "\x1c", "\x85", ",", ";", "=", "\\ "}
	lines := map[string]bool{
		"nodegate=off": true, "quiet nodegate=off ro": true, "\tnodegate=off": true, "nodegate=off nodegate=on": true, `"nodegate=off"`: true,
		`'nodegate=off'`: true, `nodegate="off"`: true, `no'degate=of'f`: true, "-- nodegate=off": true, "a\rnodegate=off": true,
		`"it's" nodegate=off`: true,

		"": false, `foo="a nodegate=off b"`: false, `foo='a nodegate=off b'`: false, `foo="a nodegate=off`: false, "NODEGATE=off": false,
		"nodegate=OFF": false, "nodegate=off,": false, "nodegate=": false, "nodegate": false, "nodegate off": false, "nodegate =off": false,
		"nodegate.off": false, "rd.nodegate=off": false, "nodegate=offf": false, "xnodegate=off": false, `nodegate="off"x`: false,
		"nodegate=\u043eff": false, "n\u043edegate=off": false, "nodegate\u200b=off": false, "nodegate=off\u200b": false,
		`foo="it's nodegate=off`: false, `nodegate="off nodegate=on"`: false, "#nodegate=off": false, "nodegate\uff1doff": false,
	}
	for _, c := range apart {
		lines["quiet"+c+"nodegate=off"] = false
	}
	var all []string
	for line := range lines {
		all = append(all, line)
	}
	var closed, open survey
	forEachPoint(samplePoints(t, len(all), len(all)), 4, func(i int) {
		name := fmt.Sprintf("%s/cmdline%d", r.dir, i)
		writeFile(t, name, all[i]+"\n")
		s := &closed
		if lines[all[i]] {
			s = &open
		}
		s.runPoint(t, fmt.Sprintf("command line %q", all[i]), func() error {
			out, status, err := r.run("mount --bind "+name+" /proc/cmdline", "gate")
			if !lines[all[i]] {
				return judgeHeld(out, status, err, "nodegate_no_such")
			}
			if err != nil || status != 0 || !strings.Contains(out, "nodegate=off") {
				return fmt.Errorf("break-glass does not open the gate: status %d, %v: %s", status, err, lastLines(out))
			}
			return nil
		})
	})
	closed.printCounts(t, "kernel command line like nodegate=off")
	open.printCounts(t, "kernel command line that is nodegate=off")
}
