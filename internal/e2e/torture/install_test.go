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
	"nodegate/internal/require"
)

// policies are two policies of three files each: one file is unchanged, one changed, one removed, one added.
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

// bench holds the programs, policies and trees that all attacks on installations share. No attack changes them.
type bench struct {
	dir        string
	nodegate   map[string]string // binaries: old, new
	bare       string            // the tree of a machine without nodegate
	old        string            // the same tree with the old installation
	manifest   map[string]string // descriptions of the trees: bare, old, new
	reads      map[string]string // the policy as a reader sees it: bare, old, new
	installing string            // the error before the first installation has written its policy
}

func newBench(t *testing.T, dir string) *bench {
	b := &bench{dir: dir, bare: dir + "/bare", old: dir + "/old", manifest: map[string]string{}, reads: map[string]string{},
		nodegate: map[string]string{"new": nodegate(t), "old": dir + "/nodegate-old"}, installing: "has no policy"}
	program, err := os.ReadFile(b.nodegate["new"])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(b.nodegate["old"], append(program, "older"...), 0o755)) // another checksum, the same behaviour
	for policy, files := range policies {
		for name, text := range files {
			writeFile(t, dir+"/policy-"+policy+"/"+name, text)
		}
	}
	// Files of other tools, with odd modes, already exist at several paths.
	writeFile(t, b.bare+"/lib/systemd/system/kubelet.service", "[Service]\nExecStart=/bin/true\n")
	writeFile(t, b.bare+"/etc/sysctl.d/99-zz-nodegate.conf", "# another tool's file\n")
	writeFile(t, b.bare+"/etc/systemd/system/kubelet.service.d/10-nodegate.conf", "# an earlier gate\n")
	require.NoError(t, os.Chmod(b.bare+"/etc/systemd/system/kubelet.service.d/10-nodegate.conf", 0o640))
	require.NoError(t, os.MkdirAll(b.bare+"/var/lib", 0o755))
	require.NoError(t, os.MkdirAll(b.bare+"/usr/local/bin", 0o755))

	copyTree(t, b.bare, b.old)
	require.NoError(t, b.finishRun(b.old, "install", "old"))
	upgraded := dir + "/upgraded"
	copyTree(t, b.old, upgraded)
	require.NoError(t, b.finishRun(upgraded, "install", "new"))
	for state, root := range map[string]string{"bare": b.bare, "old": b.old, "new": upgraded} {
		b.manifest[state], err = describeTree(root)
		require.NoError(t, err)
		b.reads[state], err = b.readPolicy(root)
		require.NoError(t, err, "%s", state)
	}
	return b
}

// runArgs returns the command line of a run that is attacked, or that finishes an attacked one.
func (b *bench) runArgs(root, verb, which string) []string {
	args := []string{b.nodegate[which], verb, "--root", root}
	if verb == "install" {
		args = append(args, "--policy", b.dir+"/policy-"+which)
	}
	return args
}

func (b *bench) finishRun(root, verb, which string) error {
	args := b.runArgs(root, verb, which)
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running %s again: %w: %s", verb, err, lastLines(string(out)))
	}
	return nil
}

// readPolicy returns the policy as the gate would read it.
func (b *bench) readPolicy(root string) (string, error) {
	out, err := exec.Command(b.nodegate["new"], "policy", "show", "--effective", "--root", root).CombinedOutput()
	if err != nil && !strings.Contains(string(out), b.installing) {
		return "", fmt.Errorf("reading the policy: %w: %s", err, lastLines(string(out)))
	}
	if err != nil {
		return b.installing, nil
	}
	// Ignore the root and the width of columns, which depend on the place of the files.
	return strings.Join(strings.Fields(strings.ReplaceAll(string(out), root, "")), " "), nil
}

// describeTree returns paths, modes, links and checksums of a tree, without its times and nodegate's journal.
func describeTree(root string) (string, error) {
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
	name, start string // start is the initial tree: bare or old
	verb, which string
	reads       []string // the policies that a reader may find after the run was interrupted
}

var phases = []phase{
	{"install", "bare", "install", "new", []string{"bare", "new", "installing"}},
	{"upgrade", "old", "install", "new", []string{"old", "new"}},
	{"uninstall", "old", "uninstall", "old", []string{"old", "bare", "installing"}},
}

// judgeTree checks a tree after an attack, and consumes it: the policy must be complete, and another run must reach a known state.
func (b *bench) judgeTree(p phase, root string, byUninstall bool) error {
	got, err := b.readPolicy(root)
	if err != nil {
		return err
	}
	whole := false
	for _, state := range p.reads {
		whole = whole || got == b.reads[state] || state == "installing" && got == b.installing
	}
	if !whole {
		return fmt.Errorf("the policy is neither the old nor the new one:\n%s", got)
	}
	if !byUninstall {
		if err := b.finishRun(root, "install", "new"); err != nil {
			return err
		}
		if err := b.compareState("new", root); err != nil {
			return err
		}
	}
	if err := b.finishRun(root, "uninstall", p.which); err != nil {
		return err
	}
	return b.compareState("bare", root)
}

// compareState returns an error if a tree differs from a known state.
func (b *bench) compareState(state, root string) error {
	now, err := describeTree(root)
	if d := cmp.Diff(b.manifest[state], now); err == nil && d != "" {
		err = fmt.Errorf("the finished tree differs from %s:\n%s", state, d)
	}
	return err
}

// TestInstallation attacks the writing system calls of install, upgrade and uninstall.
func TestInstallation(t *testing.T) {
	t.Parallel()
	b := newBench(t, scratchDir(t))
	for _, p := range phases {
		// Count the calls first.
		root := b.dir + "/" + p.name
		copyTree(t, b.dir+"/"+p.start, root)
		var calls []inject.Call
		count := func(c inject.Call) inject.Action {
			if c.Writes() && strings.HasPrefix(c.Path(), root+"/") {
				calls = append(calls, c)
			}
			return inject.Action{}
		}
		out, status, err := runProgram(b.dir, b.runArgs(root, p.verb, p.which), count)
		require.True(t, err == nil && status == 0, "%s: exit %d, %v: %s", p.name, status, err, out)
		require.True(t, len(calls) >= 30, "%s makes only %d writing calls: the test does not see all of them", p.name, len(calls))
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
			forEachPoint(samplePoints(t, len(points), 10), 2, func(chosen int) {
				point := points[chosen]
				root := fmt.Sprintf("%s/%s-%d", b.dir, p.name, number.Add(1))
				copyTree(t, b.dir+"/"+p.start, root)
				defer os.RemoveAll(root)
				s.runPoint(t, fmt.Sprintf("%s, %s at writing call %d", p.name, attack.name, point), func() error {
					seen := 0
					_, status, err := runProgram(b.dir, b.runArgs(root, p.verb, p.which), func(c inject.Call) inject.Action {
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
						return fmt.Errorf("only %d writing calls were made: the attack never happened", seen)
					}
					if strings.HasPrefix(attack.name, "killed") != (status == -1) {
						return fmt.Errorf("exit status %d", status)
					}
					return b.judgeTree(p, root, point%2 == 1)
				})
			})
			s.printCounts(t, p.name+": "+attack.name)
		}
	}
}

func copyTree(t *testing.T, from, to string) {
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Error(errors.Join(err, errors.New(string(out))))
	}
}
