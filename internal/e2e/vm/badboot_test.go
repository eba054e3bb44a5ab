//go:build vm

package vm

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/host"
	"nodegate/internal/host/qemu"
	"nodegate/internal/require"
)

// TestBadBoot: systemd-boot tries a new entry once, but its kernel cannot load br_netfilter. The node restarts by itself, boots the
// previous entry, and still has the report of the bad boot. The previous entry is new as well; it passes, and systemd-boot marks it good.
func TestBadBoot(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	base, err := DefaultCache(mustAbs(t, repository)).Tree(t.Context(), "boot", "systemd-boot")
	require.NoError(t, err)
	firmware, err := qemu.Firmware(qemu.UEFI)
	require.NoError(t, err)
	dir := filepath.Join(r.Scratch, "bad-boot")
	tree, disk := filepath.Join(dir, "tree"), filepath.Join(dir, "disk.img")
	mustRun(t, "mkdir", dir)
	require.NoError(t, base.Clone(t.Context(), tree))
	for name, text := range map[string]string{
		"node.hcl":    "use \"kubernetes\" {}\nprobe \"bridge\" {}\ngate {\n  budget = \"90s\"\n}\n",
		"good+3.conf": bootEntry(1, ""),
		"bad+1.conf":  bootEntry(2, "module_blacklist=br_netfilter"),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	mustRun(t, r.Nodegate, "install", "--root", tree, "--policy", dir+"/node.hcl", "--assess-boot")
	mustRun(t, "mkdir", tree+"/efi") // systemd mounts the loader's partition here, to rename a good entry
	require.NoError(t, base.MakeBootable(t.Context(), tree, disk, words))
	first := fmt.Sprintf("%s@@%d", disk, firstStart*512)
	mustRun(t, "mdel", "-i", first, "::/loader/entries/node.conf")
	mustRun(t, "mcopy", "-i", first, dir+"/good+3.conf", dir+"/bad+1.conf", "::/loader/entries/")
	m := qemu.Machine{Accelerator: qemu.TCG, Disk: qemu.Disk{File: disk, Format: "raw"}, Ports: []string{host.ReportPort}, More: firmware}

	bad, err := m.Start()
	require.NoError(t, err)
	defer bad.Kill()
	select {
	case <-bad.Ended():
	case <-time.After(bootTime):
	}
	bad.Kill()
	if console := bad.Console(); !strings.Contains(console, "this boot has failed (try 1): restarting") {
		t.Fatalf("the bad entry was not given up:\n%s", qemu.Tail(console, 60))
	}
	mustRun(t, "mtype", "-i", first, "::/loader/entries/bad+0-1.conf")

	good, err := m.Start()
	require.NoError(t, err)
	defer good.Kill()
	port := qemu.Record(good.Ports[0])
	passes := func() bool {
		verdicts, _ := r.consoleVerdicts(t.Context(), port.Text())
		return len(verdicts) > 0 && verdicts[0] == "pass"
	}
	blessed := func() bool {
		return exec.CommandContext(t.Context(), "mtype", "-i", first, "::/loader/entries/good.conf").Run() == nil
	}
	for began := time.Now(); !passes() || !blessed(); time.Sleep(time.Second) {
		if time.Since(began) > bootTime {
			t.Fatalf("%s\nthe previous entry passes: %t (%d bytes at the port), and is marked good: %t", qemu.Tail(good.Console(), 60), passes(),
				len(port.Text()), blessed())
		}
	}
	good.Kill()
	kept := filepath.Join(dir, "failed-boot.json")
	said, _ := exec.CommandContext(t.Context(), "debugfs", "-c", "-R", "dump /var/lib/nodegate/failed-boot.json "+kept,
		fmt.Sprintf("%s?offset=%d", disk, treeStart*512)).CombinedOutput()
	text, err := os.ReadFile(kept)
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, said, bad.Console())
	}
	var report struct {
		Results []struct{ Name, Verdict string }
	}
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatalf("%v from:\n%s", err, text)
	}
	for _, res := range report.Results {
		if res.Name == "module.br_netfilter" && res.Verdict == "fail" {
			return
		}
	}
	t.Errorf("the report of the bad boot lacks the cause:\n%s", text)
}

// bootEntry returns an entry of systemd-boot, which tries the highest version first.
func bootEntry(version int, more string) string {
	return fmt.Sprintf("title node\nsort-key node\nversion %d\nlinux /vmlinuz\ninitrd /initrd.img\noptions root=/dev/vda2 rw %s %s\n", version,
		words, more)
}
