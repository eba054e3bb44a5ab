//go:build vm

package vm

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// words is the kernel command line of the tested image.
const words = emulated + " console=ttyS0 loglevel=4 net.ifnames=0 systemd.show_status=true"

// imageCase is an image, intact or broken in one way, and the output that `nodegate image test` must print for it.
type imageCase struct {
	name   string
	change string // commands of debugfs
	raw    func(t *testing.T, disk string)
	args   string
	code   int
	says   []string // must be in standard output or error
	long   bool     // not in CI
	auto   bool     // may use KVM if it works on this host
}

// TestImage boots one image, intact and broken in several ways, as people should before they ship it.
func TestImage(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	tree, whole := filepath.Join(r.Scratch, "image-tree"), filepath.Join(r.Scratch, "whole.raw")
	require.NoError(t, r.Base.Clone(t.Context(), tree))
	mustRun(t, r.Nodegate, "install", "--root", tree)
	require.NoError(t, r.Base.MakeBootable(t.Context(), tree, whole, words))
	mustRun(t, "rm", "-r", tree)
	mustRun(t, "ln", "-s", r.Base.Kernel, filepath.Join(r.Scratch, "vmlinuz"))
	mustRun(t, "ln", "-s", r.Base.Initrd, filepath.Join(r.Scratch, "initrd.img"))
	for name, text := range map[string]string{
		"no.conf":  "install br_netfilter /bin/false\n",
		"torn.hcl": "sysctl \"net.ipv4.ip_for",
		"fstab":    "/dev/nosuch /data ext4 x-systemd.device-timeout=2s 0 0\n",
		"with.hcl": "sysctl \"kernel.nosuch\" { value = 1 }\n",
		"init":     "#!/bin/sh\nexit 1\n",
		"off":      "",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(r.Scratch, name), []byte(text), 0o755))
	}
	call := guideBlock(t, "sh boot")
	var wrong []string
	for _, c := range []imageCase{
		{name: "whole, BIOS", auto: true, says: []string{"nodegate: pass"}},
		{name: "whole, UEFI, qcow2", args: "--firmware uefi -o json", says: []string{`"name": "image.boots"`, `"name": "module.br_netfilter"`},
			raw: func(t *testing.T, disk string) {
				mustRun(t, "qemu-img", "convert", "-O", "qcow2", disk, disk+".qcow2")
				mustRun(t, "mv", disk+".qcow2", disk)
			}},
		{name: "a module that cannot be loaded", change: "write no.conf /etc/modprobe.d/no.conf", code: 1,
			says: []string{"fail    module.br_netfilter"}},
		{name: "five boots", args: "--boots 5", long: true, says: []string{"5 of 5 boots passed"}},
		{name: "a policy that cannot be met", args: "--with with.hcl", code: 1,
			says: []string{"sysctl.kernel.nosuch", "1 fail, 1 because of these"}},
		{name: "a torn policy", change: "write torn.hcl /etc/nodegate/policy.d/torn.hcl", code: 1,
			says: []string{"image.boots", "the policy cannot be read: /etc/nodegate/policy.d/torn.hcl:1:"}},
		{name: "a file system that is not there", change: "rm /etc/fstab\nwrite fstab /etc/fstab", code: 1,
			says: []string{"emergency shell", "nosuch"}},
		{name: "an init that ends",
			change: "rm /usr/lib/systemd/systemd\nwrite init /usr/lib/systemd/systemd\nsif /usr/lib/systemd/systemd mode 0100755",
			code:   1, says: []string{"kernel panic: Kernel panic - not syncing: Attempted to kill init"}},
		{name: "no kernel, BIOS", code: 1, says: []string{"no boot: Loading /vmlinuz... failed"}, raw: removeKernel},
		{name: "no kernel, UEFI", code: 1, says: []string{"rebooted or shut down"}, raw: removeKernel, args: "--firmware uefi",
			long: true},
		{name: "no root file system", code: 1, long: true, args: "--kernel vmlinuz --initrd initrd.img --cmdline root=/dev/nosuch,console=ttyS0",
			says: []string{"the initial RAM disk's shell"}},
		{name: "kubelet is not enabled", code: 3, long: true, change: "rm /etc/systemd/system/multi-user.target.wants/kubelet.service",
			args: "--timeout 90s", says: []string{"silence: no message from the gate in 1m30s", "login:"}},
		{name: "no serial console", code: 3, long: true, args: "--timeout 40s --kernel vmlinuz --cmdline quiet",
			says: []string{"silence: no message from the gate in 40s", "lacks console=ttyS0"}},
		{name: "switched off", code: 3, long: true, change: "write off /etc/nodegate/disabled",
			says: []string{"break-glass in force (/etc/nodegate/disabled)"}},
	} {
		if !c.long || os.Getenv("LONG") != "" {
			t.Run(c.name, func(t *testing.T) {
				if said := testImage(t, r, whole, call, c); t.Failed() {
					wrong = append(wrong, c.name+":\n"+said)
				}
			})
		}
	}
	if len(wrong) > 0 {
		t.Log(strings.Join(wrong, "\n")) // printed beside the names of the failed cases
	}
}

// testImage runs `nodegate image test` and returns its output.
func testImage(t *testing.T, r Runner, whole, call string, c imageCase) string {
	disk := filepath.Join(r.Scratch, "disk.img")
	mustRun(t, "cp", "--sparse=always", whole, disk)
	defer func() { _ = os.Remove(disk) }()
	if c.change != "" {
		require.NoError(t, Change(t.Context(), disk, strings.ReplaceAll(c.change, "write ", "write "+r.Scratch+"/")+"\n"))
	}
	if c.raw != nil {
		c.raw(t, disk)
	}
	require.NoError(t, os.Chmod(disk, 0o400))
	sum := sumOf(t, disk)
	args := strings.Fields(strings.Replace(call, "baked/disk/node.qcow2", disk, 1))[1:]
	if !c.auto {
		args = append(args, "--accelerator", "tcg")
	}
	hold := "15s"
	if c.code == 0 {
		hold = "2m" // on a busy host even the first round may take long
	}
	args = append(append(args, "--hold", hold), strings.Split(c.args, " ")...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], ",console", " console") // "console" becomes a separate argument: a space in one word
	}
	args = slices.DeleteFunc(args, func(word string) bool { return word == "" })
	cmd := exec.CommandContext(t.Context(), r.Nodegate, args...)
	cmd.Dir = r.Scratch
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	t.Logf("%.0f s; %s", time.Since(began).Seconds(), strings.ReplaceAll(stderr.String(), "\n", "; "))
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	all := stdout.String() + stderr.String()
	assert.Equal(t, cmd.ProcessState.ExitCode(), c.code, "exit status")
	for _, says := range c.says {
		if !strings.Contains(all, says) {
			t.Errorf("the output lacks %q", says)
		}
	}
	if strings.Contains(c.args, "json") {
		var report struct{ Kind string }
		if err := json.Unmarshal(stdout.Bytes(), &report); err != nil || report.Kind != "Report" {
			t.Errorf("not a report: kind %q, %v", report.Kind, err)
		}
	}
	if strings.Contains(all, "\x1b") {
		t.Error("the output contains a control sequence of the console")
	}
	if after := sumOf(t, disk); after != sum {
		t.Error("the image was changed")
	}
	return all
}

func removeKernel(t *testing.T, disk string) {
	mustRun(t, "mdel", "-i", fmt.Sprintf("%s@@%d", disk, firstStart*512), "::/vmlinuz")
}

func sumOf(t *testing.T, name string) [32]byte {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return [32]byte(h.Sum(nil))
}
