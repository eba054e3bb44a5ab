//go:build torture

package torture

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"nodegate/internal/e2e/torture/inject"
)

// policies are two policies of several files: one file stays, one changes, one goes, one comes.
var policies = map[string]map[string]string{
	"old": {
		"a.hcl":    "sysctl \"net.ipv4.ip_forward\" { value = 1 }\n",
		"b.hcl":    "sysctl \"vm.max_map_count\" { value = 262144 }\n",
		"gone.hcl": "sysctl \"vm.swappiness\" { value = 10 }\n",
	},
	"new": {
		"a.hcl":   "sysctl \"net.ipv4.ip_forward\" { value = 1 }\n",
		"b.hcl":   "sysctl \"vm.max_map_count\" { value = 524288 }\nmodule \"br_netfilter\" {}\n",
		"new.hcl": "sysctl \"fs.inotify.max_user_watches\" { value = 524288 }\n",
	},
}

// bench is what the attacks on installations share: programs, policies and trees, none of which an attack changes.
type bench struct {
	dir        string
	nodegate   map[string]string // old, new: two binaries
	bare       string            // a machine that nodegate was never on
	old        string            // the same with the old installation
	manifest   map[string]string // bare, old, new
	reads      map[string]string // what a reader of the policy gets: bare, old, new
	installing string            // the answer where the policy of the first installation is not there yet
}

func newBench(t *testing.T, dir string) *bench {
	b := &bench{dir: dir, bare: dir + "/bare", old: dir + "/old", manifest: map[string]string{}, reads: map[string]string{},
		nodegate: map[string]string{"new": nodegate(t), "old": dir + "/nodegate-old"}, installing: "has no policy"}
	program, err := os.ReadFile(b.nodegate["new"])
	must(t, err)
	must(t, os.WriteFile(b.nodegate["old"], append(program, "older"...), 0o755)) // another sum, the same behaviour
	for policy, files := range policies {
		for name, text := range files {
			write(t, dir+"/policy-"+policy+"/"+name, text)
		}
	}
	// Something is in the way of several files: another tool's, with odd modes.
	write(t, b.bare+"/lib/systemd/system/kubelet.service", "[Service]\nExecStart=/bin/true\n")
	write(t, b.bare+"/etc/sysctl.d/99-zz-nodegate.conf", "# somebody else's\n")
	write(t, b.bare+"/etc/systemd/system/kubelet.service.d/10-nodegate.conf", "# an earlier gate\n")
	must(t, os.Chmod(b.bare+"/etc/systemd/system/kubelet.service.d/10-nodegate.conf", 0o640))
	must(t, os.MkdirAll(b.bare+"/var/lib", 0o755))
	must(t, os.MkdirAll(b.bare+"/usr/local/bin", 0o755))

	copyTree(t, b.bare, b.old)
	must(t, b.finish(b.old, "install", "old"))
	upgraded := dir + "/upgraded"
	copyTree(t, b.old, upgraded)
	must(t, b.finish(upgraded, "install", "new"))
	for state, root := range map[string]string{"bare": b.bare, "old": b.old, "new": upgraded} {
		b.manifest[state], err = look(root)
		must(t, err)
		if b.reads[state], err = b.read(root); err != nil {
			t.Fatalf("%s: %v", state, err)
		}
	}
	return b
}

// args is a run that is attacked, or that finishes one.
func (b *bench) args(root, verb, which string) []string {
	args := []string{b.nodegate[which], verb, "--root", root}
	if verb == "install" {
		args = append(args, "--policy", b.dir+"/policy-"+which)
	}
	return args
}

func (b *bench) finish(root, verb, which string) error {
	args := b.args(root, verb, which)
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s again: %w: %s", verb, err, last(string(out)))
	}
	return nil
}

// read returns the policy as the gate would read it.
func (b *bench) read(root string) (string, error) {
	out, err := exec.Command(b.nodegate["new"], "policy", "show", "--effective", "--root", root).CombinedOutput()
	if err != nil && !strings.Contains(string(out), b.installing) {
		return "", fmt.Errorf("reading the policy: %w: %s", err, last(string(out)))
	}
	if err != nil {
		return b.installing, nil
	}
	// Where the files are is no part of the policy; columns are as wide as the longest of them.
	return strings.Join(strings.Fields(strings.ReplaceAll(string(out), root, "")), " "), nil
}

// look returns everything about a tree but times and what the journal remembers.
func look(root string) (string, error) {
	var all strings.Builder
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(p, root)
		if err != nil || name == "" || strings.HasPrefix(name, "/var/lib/nodegate/") || name == "/lost+found" {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&all, "%s %s", name, info.Mode())
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			fmt.Fprintln(&all, "", to)
			return err
		case info.Mode().IsRegular():
			text, err := os.ReadFile(p)
			fmt.Fprintf(&all, " %x\n", sha256.Sum256(text))
			return err
		}
		fmt.Fprintln(&all)
		return nil
	})
	return all.String(), err
}

// phase is one of the runs that are attacked.
type phase struct {
	name, start string // the tree that it begins with: bare, old
	verb, which string
	reads       []string // the policies that a reader may find after it was ended anywhere
}

var phases = []phase{
	{"install", "bare", "install", "new", []string{"bare", "new", "installing"}},
	{"upgrade", "old", "install", "new", []string{"old", "new"}},
	{"uninstall", "old", "uninstall", "old", []string{"old", "bare", "installing"}},
}

// judge says what is wrong with a tree that an attack has left. It uses the tree up.
func (b *bench) judge(p phase, root string, byUninstall bool) error {
	got, err := b.read(root)
	if err != nil {
		return err
	}
	whole := false
	for _, state := range p.reads {
		whole = whole || got == b.reads[state] || state == "installing" && got == b.installing
	}
	if !whole {
		return fmt.Errorf("the policy is neither the old one nor the new one but\n%s", got)
	}
	if !byUninstall {
		if err := b.finish(root, "install", "new"); err != nil {
			return err
		}
		if err := b.is("new", root); err != nil {
			return err
		}
	}
	if err := b.finish(root, "uninstall", p.which); err != nil {
		return err
	}
	return b.is("bare", root)
}

// is says what differs between a tree and one of the known states.
func (b *bench) is(state, root string) error {
	now, err := look(root)
	if d := cmp.Diff(b.manifest[state], now); err == nil && d != "" {
		err = fmt.Errorf("finished, it is not %s:\n%s", state, d)
	}
	return err
}

// TestInstallation attacks every writing system call of install, upgrade and uninstall.
func TestInstallation(t *testing.T) {
	t.Parallel()
	b := newBench(t, scratch(t))
	for _, p := range phases {
		// All of them are counted first.
		root := b.dir + "/" + p.name
		copyTree(t, b.dir+"/"+p.start, root)
		var calls []inject.Call
		count := func(c inject.Call) inject.Action {
			if c.Writes() && strings.HasPrefix(c.Path(), root+"/") {
				calls = append(calls, c)
			}
			return inject.Action{}
		}
		out, status, err := run(b.dir, b.args(root, p.verb, p.which), count)
		if err != nil || status != 0 {
			t.Fatalf("%s: exit %d, %v: %s", p.name, status, err, out)
		}
		if len(calls) < 30 {
			t.Fatalf("%s writes only %d times: the test does not see its system calls", p.name, len(calls))
		}
		t.Logf("%s makes %d writing system calls", p.name, len(calls))
		for _, attack := range []struct {
			name string
			torn bool
			at   func(inject.Call) inject.Action
		}{
			{"killed", false, func(inject.Call) inject.Action { return inject.Action{Kill: true} }},
			{"killed in the middle of a write", true, func(inject.Call) inject.Action { return inject.Action{Torn: true} }},
			{"ENOSPC once", false, func(inject.Call) inject.Action { return inject.Action{Fail: unix.ENOSPC} }},
			{"EIO once", false, func(inject.Call) inject.Action { return inject.Action{Fail: unix.EIO} }},
			{"ENOSPC from then on", false, func(c inject.Call) inject.Action {
				if c.Needs() {
					return inject.Action{Fail: unix.ENOSPC}
				}
				return inject.Action{}
			}},
		} {
			var s survey
			var number atomic.Int64
			var points []int
			for point, c := range calls {
				if !attack.torn || c.IsWrite() {
					points = append(points, point)
				}
			}
			each(sample(t, len(points), 10), 2, func(chosen int) {
				point := points[chosen]
				root := fmt.Sprintf("%s/%s-%d", b.dir, p.name, number.Add(1))
				copyTree(t, b.dir+"/"+p.start, root)
				defer os.RemoveAll(root)
				s.point(t, fmt.Sprintf("%s, %s at writing call %d", p.name, attack.name, point), func() error {
					seen := 0
					_, status, err := run(b.dir, b.args(root, p.verb, p.which), func(c inject.Call) inject.Action {
						if !c.Writes() || !strings.HasPrefix(c.Path(), root+"/") {
							return inject.Action{}
						}
						seen++
						if seen == point+1 || seen > point && strings.HasSuffix(attack.name, "on") {
							return attack.at(c)
						}
						return inject.Action{}
					})
					if err != nil {
						return err
					}
					if seen <= point {
						return fmt.Errorf("only %d writing calls were made: it was not attacked", seen)
					}
					if strings.HasPrefix(attack.name, "killed") != (status == -1) {
						return fmt.Errorf("exit status %d", status)
					}
					return b.judge(p, root, point%2 == 1)
				})
			})
			s.close(t, p.name+": "+attack.name)
		}
	}
}

func copyTree(t *testing.T, from, to string) {
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Error(errors.Join(err, errors.New(string(out))))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
