package imagetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/host/qemu"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// words returns the gate's output on its port for a report.
func words(t *testing.T, verdict verdict.Verdict, policy string, names ...string) string {
	t.Helper()
	results := []report.Result{}
	for _, name := range names {
		results = append(results, report.Result{Name: name, Verdict: verdict, Severity: "block"})
	}
	lines, err := report.FullConsoleReport(report.Report{
		APIVersion: report.APIVersion, Kind: report.KindReport, Node: report.Node{Name: "node"}, Stage: "boot", Verdict: verdict,
		Policy: report.Policy{Files: []string{policy}}, Results: results,
		Time: "2026-01-31T12:00:00.000Z",
	})
	require.NoError(t, err)
	return strings.Join(lines, "\n") + "\n"
}

// TestBoots replaces QEMU with a shell script that writes to the console (descriptor 3) and to the gate's port (4).
func TestBoots(t *testing.T) {
	const installed = "/etc/nodegate/policy.d/10-node.hcl"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"pass": words(t, verdict.Pass, installed, "swap"), "fail": words(t, verdict.Fail, installed, "swap"),
		"unknown": words(t, verdict.Unknown, installed, "swap"), "with": words(t, verdict.Pass, testPolicy, "swap"),
		"nothing": words(t, verdict.Pass, installed), "boots": words(t, verdict.Fail, installed, Check),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	image := filepath.Join(dir, "image")
	require.NoError(t, os.WriteFile(image, []byte("QFI\xfb and more"), 0o400))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("TMPDIR", t.TempDir())
	for _, c := range []struct {
		what, machine string
		test          Test
		want, console string
	}{
		{"passes", "cat pass >&4; exec sleep 60", Test{}, "pass: the gate passes in 1 boot, got it passes in 1 of 1; swap pass", ""},
		{"passes each time", "cat pass >&4; exec sleep 60", Test{Boots: 3},
			"pass: the gate passes in 3 boots, got it passes in 3 of 3; swap pass", ""},
		{"passes some time", "[ ! -e second ] || { cat pass >&4; exec sleep 60; }; >second; cat fail >&4; exec sleep 60", Test{Boots: 3},
			"fail: the gate passes in 3 boots, got it passes in 2 of 3; swap fail", ""},
		{"cannot tell, and fails", "[ -e fourth ] || { >fourth; cat unknown >&4; exec sleep 60; }; cat fail >&4; exec sleep 60", Test{Boots: 2},
			"fail: the gate passes in 2 boots, got it passes in 0 of 2; swap fail", ""},
		{"says what is the test's to say", "cat boots >&4; exec sleep 60", Test{},
			"fail: the gate passes in 1 boot, got it passes in 0 of 1", ""},
		{"passes in the end", "cat fail >&4; sleep 0.3; cat pass >&4; exec sleep 60", Test{Hold: time.Minute},
			"pass: the gate passes in 1 boot, got it passes in 1 of 1; swap pass", ""},
		{"fails", "cat fail >&4; exec sleep 60", Test{}, "fail: the gate passes in 1 boot, got it passes in 0 of 1; swap fail", ""},
		{"cannot tell", "cat unknown >&4; exec sleep 60", Test{},
			"unknown: the gate passes in 1 boot, got it passes in 0 of 1; swap unknown", ""},
		{"a torn report", "head -c 200 pass >&4; echo login: >&3; exec sleep 60", Test{},
			"unknown: the gate passes in 1 boot, got it passes in 0 of 1; silence: no message from the gate in 1s", "login:"},
		{"a pass of nothing", "cat nothing >&4; exec sleep 60", Test{},
			"unknown: the gate passes in 1 boot, got it passes in 0 of 1; silence: nothing on the serial console in 1s", ""},
		{"a pass of nothing, and then", "cat nothing fail >&4; exec sleep 60", Test{},
			"fail: the gate passes in 1 boot, got it passes in 0 of 1; swap fail", ""},
		{"a policy that is no policy", "echo 'nodegate: held: the policy cannot be read: x' >&4; exec sleep 60", Test{},
			"fail: the gate passes in 1 boot, got it passes in 0 of 1; nodegate: held: the policy cannot be read: x", ""},
		{"a check that still runs", "echo 'nodegate: held: kubelet.ports has not returned for 4s' >&4; exec sleep 60", Test{},
			"unknown: the gate passes in 1 boot, got it passes in 0 of 1; nodegate: held: kubelet.ports has not returned for 4s", ""},
		{"panics", "printf 'a\\r\\n\\033[1mKernel panic - not syncing: no init\\r\\nCPU: 0\\r\\n' >&3; exit 0", Test{},
			"fail: the gate passes in 1 boot, got it passes in 0 of 1; kernel panic: Kernel panic - not syncing: no init",
			"a\nKernel panic - not syncing: no init\nCPU: 0"},
		{"panics the second time", "[ -e third ] || { >third; cat pass >&4; exec sleep 60; }; echo 'Kernel panic - not syncing' >&3",
			Test{Boots: 2},
			"fail: the gate passes in 2 boots, got it passes in 1 of 2; boot 2: kernel panic: Kernel panic - not syncing",
			"Kernel panic - not syncing"},
		{"restarts", "echo Rebooting. >&3", Test{},
			"fail: the gate passes in 1 boot, got it passes in 0 of 1; the machine rebooted or shut down before the gate's verdict",
			"Rebooting."},
		{"no console", "exec sleep 60", Test{},
			"unknown: the gate passes in 1 boot, got it passes in 0 of 1; silence: nothing on the serial console in 1s", ""},
		{"hangs", "echo 'watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [systemd:1]' >&3; echo ' </TASK>' >&3; exec sleep 60", Test{},
			"unknown: the gate passes in 1 boot, got it passes in 0 of 1; silence: no message from the gate in 1s; the kernel reported: " +
				"BUG: soft lockup - CPU#0 stuck for 26s! [systemd:1]", ""},
		{"as many processors as are asked for, one at a time", `case "$*" in *" tcg,thread=single "*" -smp 4 "*) cat pass >&4; exec sleep 60; esac`, Test{Processors: 4},
			"pass: the gate passes in 1 boot, got it passes in 1 of 1; swap pass", ""},
		{"break-glass", "echo 'nodegate: break-glass in force (x)' >&4; exec sleep 60", Test{Timeout: time.Minute},
			"unknown: the gate passes in 1 boot, got it passes in 0 of 1; nodegate: break-glass in force (x)", ""},
		{"another policy", "cat with >&4; exec sleep 60", Test{Policy: []byte("x")},
			"pass: the gate passes in 1 boot, got it passes in 1 of 1; swap pass", ""},
		{"another policy that was not taken", "cat pass >&4; exec sleep 60", Test{Policy: []byte("x")},
			"unknown: the gate passes in 1 boot, got it passes in 0 of 1; the policy was " + installed +
				": the image's systemd did not accept another one (systemd 252 or later does); swap pass", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			script := fmt.Sprintf("#!/bin/sh\ncd %s\n%s\n", dir, c.machine)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "qemu-system-x86_64"), []byte(script), 0o700))
			test := c.test
			test.Image, test.Firmware, test.Accelerator = image, qemu.BIOS, qemu.TCG
			test.Boots = max(test.Boots, 1)
			if test.Timeout == 0 {
				test.Timeout = time.Second
			}
			if test.Hold != 0 {
				test.Timeout = time.Minute
			} else if test.Timeout > time.Second || !strings.Contains(c.want, "silence") {
				test.Timeout, test.Hold = time.Minute, time.Millisecond
			}
			out, err := test.Run(t.Context())
			require.NoError(t, err)
			got := out.Report.Verdict.String() + ": " + out.Report.Results[0].Want + ", got " + out.Report.Results[0].Got
			for _, r := range out.Report.Results[1:] {
				got += "; " + r.Name + " " + r.Verdict.String()
			}
			assert.Equal(t, got, c.want)
			if c.console != "" && out.Console != c.console {
				t.Errorf("the console: %q", out.Console)
			}
		})
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestEndings uses the output of real consoles.
func TestEndings(t *testing.T) {
	for text, want := range map[string]string{
		"[   12.0] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n[ 12.0] CPU: 1": "kernel panic: Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)",
		"[FAILED] Failed to mount /data.\nYou are in emergency mode. After logging in, type":                       "emergency shell: You are in emergency mode",
		"Cannot open access to console, the root account is locked.\nSee sulogin(8) man page":                      "emergency shell: the root account is locked",
		"ALERT!  /dev/nosuch does not exist.  Dropping to a shell!\n(initramfs) ":                                  "the initial RAM disk's shell: (initramfs)",
		"Booting from Hard Disk...\nBoot failed: not a bootable disk\n\nNo bootable device.\n":                     "no boot: Boot failed: not a bootable disk",
		"BdsDxe: No bootable option or device was found.\n":                                                        "no boot: BdsDxe: No bootable option or device was found.",
		"error: file `/boot/grub/i386-pc/normal.mod' not found.\ngrub rescue> ":                                    "no boot: grub rescue>",
		"Debian GNU/Linux 12 node ttyS0\n\nnode login: ":                                                           "",
	} {
		assert.Equal(t, observe(text, "").ending, want, "%q", text)
	}
}

// TestExcerpt: the excerpt includes units that failed long before the end.
func TestExcerpt(t *testing.T) {
	console := "[FAILED] Failed to mount /data.\n" + strings.Repeat("[  OK  ] Started something.\n", 100) + "You are in emergency mode.\n" +
		strings.Repeat("a prompt\n", 100)
	got := strings.Split(observe(console, "").excerpt(), "\n")
	if len(got) != 1+linesBefore+linesAfter || got[0] != "[FAILED] Failed to mount /data." || got[linesBefore] != "You are in emergency mode." {
		t.Errorf("%d lines:\n%s", len(got), strings.Join(got, "\n"))
	}
}

// TestNoImage: a file that is not an image is rejected before the boot, with a remedy.
func TestNoImage(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		text, want string
		bare       bool
	}{
		{"QFI\xfb", "qcow2", false},
		{strings.Repeat("\x00", 510) + "\x55\xaa", "raw", false},
		{strings.Repeat("\x00", 1<<20), "is not a disk image; give a qcow2 image, a raw disk with a boot sector, or a file system with --kernel", false},
		{strings.Repeat("\x00", 1<<20), "raw", true},
		{"a text", "not a disk image", true},
		{"", "not a disk image", false},
		{"KDMV", "qemu-img convert -O qcow2", false},
		{"\x1f\x8b\x08", "compressed; unpack it first", false},
	} {
		name := filepath.Join(dir, "image")
		require.NoError(t, os.WriteFile(name, []byte(c.text), 0o600))
		format, err := imageFormat(name, c.bare)
		if got := fmt.Sprint(format, err); !strings.Contains(got, c.want) {
			t.Errorf("%.20q: %s, want %s", c.text, got, c.want)
		}
	}
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for name, want := range map[string]string{
		dir: "nodegate check --root " + dir, dir + "/nosuch": "no such file", pipe: "neither a file nor a disk",
		"/dev/zero": "neither a file nor a disk",
	} {
		if _, err := imageFormat(name, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// TestNoQEMU: the errors for missing programs name the package to install. A KVM that stops is reported.
func TestNoQEMU(t *testing.T) {
	dir := t.TempDir()
	image := filepath.Join(dir, "image")
	require.NoError(t, os.WriteFile(image, []byte("QFI\xfb"), 0o600))
	test := Test{Image: image, Firmware: qemu.BIOS, Accelerator: qemu.TCG, Boots: 1, Timeout: time.Minute}
	t.Setenv("PATH", dir)
	if _, err := test.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "apt-get install qemu-system-x86") {
		if _, there := os.Stat("/usr/libexec/qemu-kvm"); there != nil {
			t.Errorf("without QEMU: %v", err)
		}
	}
	script := "#!/bin/sh\necho 'Failed to get \"write\" lock' >&2\nexit 1\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "qemu-system-x86_64"), []byte(script), 0o700))
	if _, err := test.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `QEMU: exit status 1: Failed to get "write" lock`) {
		t.Errorf("a QEMU that refuses: %v", err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	for words, end := range map[string]string{
		"KVM internal error. Suberror: 1": "exec sleep 60", // QEMU keeps running
		"qemu-system-x86_64: ../../target/i386/kvm/kvm.c:3183: kvm_buf_set_msrs: Assertion failed.": "kill -ABRT $$",
	} {
		script := "#!/bin/sh\ncase \"$*\" in *'-accel kvm'*) echo '" + words + "' >&2; " + end + ";; esac\n" +
			"echo 'nodegate: break-glass in force (x)' >&4; exec sleep 60\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "qemu-system-x86_64"), []byte(script), 0o700))
		test.Accelerator = qemu.KVM
		if _, err := test.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot run the machine ("+words+")") {
			t.Errorf("a KVM that stops: %v", err)
		}
		test.Accelerator = qemu.Auto
		out, err := test.Run(t.Context())
		_, noDevice := os.Stat("/dev/kvm")
		if err != nil || len(out.Report.Results) == 0 || (out.NoKVM == "") != (noDevice != nil) {
			t.Errorf("the same, where emulation will do: %+v, %v", out, err)
		}
	}
	for _, wrong := range []Test{{Firmware: "efi", Accelerator: qemu.TCG}, {Firmware: qemu.BIOS, Accelerator: "xen"}} {
		wrong.Image, wrong.Boots = image, 1
		if _, err := wrong.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "unknown firmware") &&
			!strings.Contains(err.Error(), "unknown accelerator") {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}
