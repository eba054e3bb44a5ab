//go:build vm

package vm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// upgrades goes on and on between two policies that this node can prove, until the power is cut.
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

// afterCut wants a node that proves itself, and has one of the policies whole.
const afterCut = `
first_start
accepted 1
installed() { nodegate policy show --effective "$@" | sed 's,/[^ ]*/,,g' | tr -s ' '; }
installed >/run/now
installed --policy /root/a >/run/a
installed --policy /root/b >/run/b
cmp -s /run/now /run/a || cmp -s /run/now /run/b || die "the policy is neither the old one nor the new one: $(cat /run/now)"
`

// TestPowerCut kills QEMU in the middle of upgrades, and in the middle of first boots: the node boots and proves itself.
// LONG=1 takes 30 moments of each.
func TestPowerCut(t *testing.T) {
	cuts, firsts := 3, 1
	if os.Getenv("LONG") != "" {
		cuts, firsts = 30, 30
	}
	r := newRunner(t)
	m, err := r.machine(t.Context(), Scenario{Folder: Folder{Name: "power-cut"}}, r.Scratch)
	if err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(r.Scratch, "fresh.raw")
	if _, err := run(t.Context(), prepareTime, nil, "cp", "--sparse=always", m.Disk, fresh); err != nil {
		t.Fatal(err)
	}
	survived := 0
	script := "first_start\naccepted 1\n" // of the first boot; then what an upgrade was cut in is looked at first
	for cut := range cuts + 1 {
		after := time.Duration(rand.Int64N(int64(2 * time.Second)))
		if cut < cuts {
			script += upgrades
		}
		if err := r.boots(t.Context(), m, []Boot{{Script: script + fmt.Sprintf("sleep %.3f\n", after.Seconds())}}); err != nil {
			t.Fatalf("after %d power cuts in an upgrade: %v", cut, err)
		}
		script = afterCut
		survived = cut
	}
	t.Logf("TORTURE power cut in the middle of an upgrade: tried %d, survived %d", cuts, survived)
	survived = 0
	for cut := range firsts {
		if _, err := run(t.Context(), prepareTime, nil, "cp", "--sparse=always", fresh, m.Disk); err != nil {
			t.Fatal(err)
		}
		after := 2*time.Second + time.Duration(rand.Int64N(int64(23*time.Second)))
		if err := cutBoot(t.Context(), m, after); err != nil {
			t.Fatal(err)
		}
		if err := r.boots(t.Context(), m, []Boot{{Script: "first_start\naccepted 1\n"}}); err != nil {
			t.Errorf("power cut %s after the first start, number %d: %v", after, cut+1, err)
			continue
		}
		survived++
	}
	t.Logf("TORTURE power cut in the middle of a first boot: tried %d, survived %d", firsts, survived)
}

// cutBoot starts the machine, and kills it after a time.
func cutBoot(ctx context.Context, m Machine, after time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, after)
	defer cancel()
	g, err := m.Boot(ctx, "")
	if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil && g == nil {
		return nil // it was killed before its agent answered
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	g.Kill()
	return nil
}
