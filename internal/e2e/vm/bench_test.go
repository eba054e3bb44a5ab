//go:build vm

package vm

import (
	"context"
	"testing"
)

// costScript prints the time that nodegate adds to a boot, by systemd's own clock.
const costScript = `
first_start
within 120 settled
at() { systemctl show -P "$2" "$1"; }
ms() { echo "$(($1 / 1000)).$(($1 % 1000 / 100))"; }
echo
echo "boot cost (guest clock, emulated by TCG: a real machine is many times faster)"
began=$(at nodegate-apply.service InactiveExitTimestampMonotonic)
ended=$(at nodegate-apply.service ActiveEnterTimestampMonotonic)
echo "nodegate-apply.service   $(ms $((ended - began))) ms"
began=$(at kubelet.service InactiveExitTimestampMonotonic)
ended=$(at kubelet.service ExecMainStartTimestampMonotonic)
echo "nodegate gate            $(ms $((ended - began))) ms (kubelet's ExecStartPre to its ExecStart)"
echo "kubelet started at       $(ms "$ended") ms"
systemd-analyze time || :
echo
echo "what takes longest, and nodegate:"
systemd-analyze blame --no-pager | awk 'NR <= 5 || /nodegate/'
`

// TestBootCost prints the time that nodegate adds to a boot, and asserts nothing about it.
func TestBootCost(t *testing.T) {
	r := newRunner(t)
	ctx, cancel := context.WithTimeout(t.Context(), wholeTime)
	defer cancel()
	s := Scenario{Folder: Folder{Name: "boot-cost"}, Boots: []Boot{{Script: costScript}}}
	if err := r.Run(ctx, s); err != nil {
		t.Error(err)
	}
}
