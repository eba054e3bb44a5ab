//go:build vm

package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

const booted = "first_start\naccepted 1\n"

// upgrades installs two policies alternately until the power is cut. The node can prove both.
const upgrades = `
mkdir -p /root/a /root/b
echo 'use "kubernetes" {}' >/root/a/10.hcl
cp /root/a/10.hcl /root/b/10.hcl
echo 'sysctl "vm.max_map_count" { min = 65530 }' >/root/a/20.hcl
echo 'sysctl "fs.file-max" { min = 1000 }' >/root/b/20.hcl
echo 'sysctl "kernel.pid_max" { min = 1000 }' >/root/b/30.hcl
sync
setsid sh -c 'while :; do nodegate install --policy /root/b && nodegate install --policy /root/a; done' >/run/upgrades 2>&1 </dev/null &
for try in $(seq 240); do
	grep -q installed: /run/upgrades && break
	[ $try -lt 240 ] || die "no upgrade: $(tail -n 5 /run/upgrades)"
	sleep 0.5
done
`

// afterCut checks that the node is proven and has one of the policies completely.
const afterCut = booted + `
installed() { nodegate policy show --effective "$@" | sed 's,/[^ ]*/,,g' | tr -s ' '; }
installed >/run/now
installed --policy /root/a >/run/a
installed --policy /root/b >/run/b
cmp -s /run/now /run/a || cmp -s /run/now /run/b || die "the policy is neither the old one nor the new one: $(cat /run/now)"
`

// TestPowerCutUpgrade kills QEMU in the middle of upgrades. The node must boot and be proven, and the next upgrade begins. The guest's
// memory and the cache of its disk are lost. LONG=1 repeats it 30 times. SECURITY.md: atomic.
func TestPowerCutUpgrade(t *testing.T) {
	t.Parallel()
	r, m := newMachineForCuts(t)
	script := booted // later the state after the cut is checked first
	cuts := cutCount(3)
	for cut := range cuts + 1 {
		after := time.Duration(rand.Int64N(int64(2 * time.Second)))
		if cut < cuts {
			script += upgrades
		}
		m = overlayDisk(t, m)
		require.NoError(t, r.bootAll(t.Context(), m, []Boot{{Script: script + fmt.Sprintf("sleep %.3f\n", after.Seconds())}}), "after %d", cut)
		script = afterCut
	}
	t.Logf("TORTURE power cut in the middle of an upgrade: tried %d, survived %d", cuts, cuts)
}

// TestPowerCutFirstBoot cuts the power at random times of a first boot. LONG=1 repeats it 30 times.
func TestPowerCutFirstBoot(t *testing.T) {
	t.Parallel()
	r, fresh := newMachineForCuts(t)
	began := time.Now()
	require.NoError(t, r.bootAll(t.Context(), overlayDisk(t, fresh), []Boot{{Script: booted}}))
	whole := time.Since(began)
	survived, cuts := 0, cutCount(1)
	for _, part := range rand.Perm(cuts) { // times spread over the whole boot
		m := overlayDisk(t, fresh)
		after := time.Duration((float64(part) + rand.Float64()) / float64(cuts) * float64(whole))
		require.NoError(t, cutBoot(t.Context(), m, after))
		if err := r.bootAll(t.Context(), m, []Boot{{Script: booted}}); err != nil {
			t.Errorf("power cut %s after the first start: %v", after, err)
			continue
		}
		t.Logf("cut %.1f s after the first start; it took %.1f", after.Seconds(), whole.Seconds())
		survived++
	}
	t.Logf("TORTURE power cut in the middle of a first boot: tried %d, survived %d", cuts, survived)
}

func newMachineForCuts(t *testing.T) (Runner, Machine) {
	t.Helper()
	r := newRunner(t)
	m, err := r.makeMachine(t.Context(), Scenario{Folder: Folder{Name: "power-cut"}}, r.Scratch)
	require.NoError(t, err)
	return r, m
}

func cutCount(few int) int {
	if os.Getenv("LONG") != "" {
		return 30
	}
	return few
}

// overlayDisk returns the machine with an overlay over its disk, which stays unchanged. QEMU keeps the positions of new blocks in memory
// until the guest flushes. So killing QEMU loses everything that the guest wrote after its last flush, like the cache of a real disk.
func overlayDisk(t *testing.T, m Machine) Machine {
	t.Helper()
	f, err := os.CreateTemp(filepath.Dir(m.Disk), "over-*.qcow2")
	require.NoError(t, err)
	f.Close()
	below := cmp.Or(m.Format, "raw")
	if _, err := runProgram(t.Context(), copyTime, nil, "qemu-img", "create", "-q", "-f", "qcow2", "-o", "cluster_size=4k",
		"-b", m.Disk, "-F", below, f.Name()); err != nil {
		t.Fatal(err)
	}
	m.Disk, m.Format = f.Name(), "qcow2"
	return m
}

// TestUnflushedIsLost: the disk of the power cuts behaves like a disk with a cache.
func TestUnflushedIsLost(t *testing.T) {
	missing := Missing()
	hosttest.Need(t, len(missing) == 0, strings.Join(missing, "\n"))
	m := Machine{Disk: filepath.Join(t.TempDir(), "disk.img")}
	require.NoError(t, os.WriteFile(m.Disk, make([]byte, 1<<20), 0o600))
	m = overlayDisk(t, m)
	qemuIO := func(commands ...string) string {
		args := []string{"-t", "unsafe", "-f", m.Format}
		for _, c := range commands {
			args = append(args, "-c", c)
		}
		out, _ := exec.CommandContext(t.Context(), "qemu-io", append(args, m.Disk)...).CombinedOutput() // it kills itself
		return string(out)
	}
	qemuIO("write -P 1 0 4k", "flush", "write -P 2 4k 4k", "sigraise 9")
	if out := qemuIO("read -P 1 0 4k", "read -P 0 4k 4k"); strings.Count(out, "read 4096/4096") != 2 || strings.Contains(out, "Pattern") {
		t.Errorf("the flushed block must survive and the other be lost:\n%s", out)
	}
}

// cutBoot starts the machine, and kills it after the given time.
func cutBoot(ctx context.Context, m Machine, after time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, after)
	defer cancel()
	g, err := m.Boot(ctx, "")
	if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil && g == nil {
		return nil // killed before its agent answered
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	g.Kill()
	return nil
}
