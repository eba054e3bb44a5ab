package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestOutputs: each verb that has --output replaces a regular file only. It writes through a device, a FIFO and a link to each, and
// refuses a directory, and a link in a directory of another user; so do the verbs that write files by another flag. As root, a verb that renamed its file over /dev/null left a machine without that device.
func TestOutputs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("p.hcl", "sysctl \"net.ipv4.ip_forward\" {\n  value = 1\n}\n")
	write("q.hcl", "sysctl \"net.ipv4.ip_forward\" {\n  value = 0\n}\n")
	write("s.conf", "net.ipv4.ip_forward = 1\n")
	write("rules.txt", "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "tree/etc"), 0o755))
	const odd = "sysctl   \"net.ipv4.ip_forward\" { value = 1 }\n"
	write("odd.hcl", odd)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "theirs/tree"), 0o755))
	for link, to := range map[string]string{"link": "../s.conf", "link.hcl": "../odd.hcl", "nodegate.prom": "../odd.hcl", "tree/etc": "../../tree/etc"} {
		require.NoError(t, os.Symlink(to, filepath.Join(dir, "theirs", link)))
	}
	_ = os.Chown(filepath.Join(dir, "theirs"), 65534, 0) // an ordinary user cannot
	verbs := map[string]string{
		"audit": "--rules rules.txt", "check": "--policy p.hcl --root tree", "explain": "", "export": "kops --policy p.hcl",
		"plan": "--policy p.hcl --root tree", "policy diff": "p.hcl q.hcl", "policy import": "s.conf", "policy list": "", "policy show": "kubernetes", "preview": "--policy p.hcl n.json",
		"report": "r.json", "snapshot": "--policy p.hcl --root tree", "version": "",
	}
	run := func(args ...string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, "nodegate", args...)
		c.Dir = dir
		return c.CombinedOutput()
	}
	_, _ = run("check", "--policy", "p.hcl", "--root", "tree", "-o", "r.json") // the tree fails the check
	_, _ = run("snapshot", "--policy", "p.hcl", "--root", "tree", "-o", "n.json")
	golden, err := os.ReadFile("testdata/contract.golden")
	require.NoError(t, err)
	needsNode := []string{"apply", "probe bridge", "probe service", "rehearse", "status"} // they have the same writer as check
	for _, m := range regexp.MustCompile(`(?m)^flag nodegate (.*) --output`).FindAllSubmatch(golden, -1) {
		_, listed := verbs[string(m[1])]
		assert.True(t, listed || slices.Contains(needsNode, string(m[1])), "nodegate %s has --output and is not in this test", m[1])
	}
	for what, command := range map[string]string{
		"fmt":          "nodegate fmt theirs/link.hcl",
		"export files": "nodegate export files --policy q.hcl -o theirs/tree", // theirs/tree/etc is a link
		"textfile": `mount -t tmpfs tmpfs /run; nodegate watch --policy q.hcl --interval 1s --textfile theirs 2>log & for i in $(seq 300); do ! grep "symbolic link" log || break; sleep 0.1; done
			kill $!; wait $!`,
	} {
		if os.Getuid() == 0 { // an ordinary user cannot make files of another one
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c := exec.CommandContext(ctx, "unshare", "--mount", "--net", "sh", "-c", command)
			c.Dir = dir
			out, _ := c.CombinedOutput()
			mine, _ := os.ReadFile(filepath.Join(dir, "odd.hcl"))
			if made, _ := os.ReadDir(filepath.Join(dir, "tree/etc")); !strings.Contains(string(out), "is a symbolic link that another user") || string(mine) != odd || len(made) > 0 {
				t.Errorf("%s followed a link of another user: %s\n%s\n%v", what, out, mine, made)
			}
		}
	}
	for verb, args := range verbs {
		t.Run(verb, func(t *testing.T) {
			call := append(strings.Fields(verb), strings.Fields(args)...)
			name := strings.ReplaceAll(verb, " ", "-")
			fifo, device := filepath.Join(dir, name+".fifo"), filepath.Join(dir, name+".null")
			require.NoError(t, syscall.Mkfifo(fifo, 0o600))
			null := 1<<8 | 3
			if err := syscall.Mknod(device, syscall.S_IFCHR|0o600, null); err != nil {
				device = "/dev/null" // an ordinary user can make no device, and cannot replace this one
			}
			for _, to := range []string{fifo, device} {
				link := to + ".link"
				if to == "/dev/null" {
					link = filepath.Join(dir, name+".link")
				}
				require.NoError(t, os.Symlink(to, link))
				for _, target := range []string{to, link} {
					before, err := os.Lstat(target)
					require.NoError(t, err)
					end := make(chan int, 1)
					if to == fifo {
						go func() {
							text, _ := os.ReadFile(fifo)
							end <- len(text)
						}()
					}
					out, _ := run(append(call, "-o", target)...)
					after, err := os.Lstat(target)
					if err != nil || before.Mode() != after.Mode() {
						t.Errorf("-o %s left %v %v, want %v", target, after, err, before.Mode())
						return
					}
					if to != fifo {
						continue
					}
					if f, err := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil { // end a reader that got nothing
						f.Close()
					}
					n := <-end
					assert.True(t, n != 0, "-o %s wrote nothing: %s", target, out)
				}
			}
			if os.Getuid() == 0 { // other tests skip the whole test for an ordinary user
				out, _ := run(append(call, "-o", filepath.Join(dir, "theirs", "link"))...)
				assert.Contains(t, string(out), "link is a symbolic link that another user", "-o LINK of another user")
			}
			if out, err := run(append(call, "-o", filepath.Join(dir, "tree"))...); err == nil || !strings.Contains(string(out), "tree") {
				t.Errorf("-o DIRECTORY: %v, %s", err, out)
			}
		})
	}
}
