package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// swap: kubelet does not start on a node with swap unless configured to.
func swap() checks.Problem {
	return checks.Problem{
		Name: "swap", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects:  "Swap is on, and kubelet is not configured to tolerate it.",
		Symptom:  "kubelet exits: \"running with swap on is not supported, please disable swap\"; the node never becomes Ready.",
		How:      "/proc/swaps has an entry, and neither kubelet's configuration nor its flags set failSwapOn to false.",
		Remedy:   "run `swapoff -a` and remove the swap entries from /etc/fstab (and disable zram-generator), or set failSwapOn: false",
		TradeOff: "With failSwapOn: false and without memorySwap.swapBehavior, Pods still do not swap; the node's own processes may.",
		Ref:      "https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/",
		Inspect:  inspectSwap,
	}
}

func inspectSwap(_ context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.Passing("no swap")
	k, found, err := readConfig(h, &s)
	if k.Holder == "" && (strings.HasPrefix(p.Gate.Unit, "k3s") || strings.HasPrefix(p.Gate.Unit, "rke2")) { // a unit with a name of its own
		s.Skip = "k3s and RKE2 start kubelet with --fail-swap-on=false"
		return s, err
	}
	if !found {
		return s, err
	}
	text, err := h.Text("/proc/swaps")
	if errors.Is(err, fs.ErrNotExist) {
		if none, errNone := cannotSwap(h, &s); none || errNone != nil {
			return s, errNone
		}
	}
	if err != nil {
		return s, fmt.Errorf("reading the swap devices: %w", err)
	}
	var devices []string
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 3 && f[0] != "Filename" {
			devices = append(devices, f[0])
			s.Evidence = append(s.Evidence, checks.Seen("/proc/swaps", strings.Join(f, " ")))
		}
	}
	if devices == nil {
		return s, nil
	}
	setting, told := k.Values["failSwapOn"]
	switch {
	case told && setting.Value == "false":
		s.Want, s.Got = "no swap, or failSwapOn false", "swap, and failSwapOn false"
		s.Evidence = append(s.Evidence, checks.Seen(setting.From.Source, setting.From.Text))
		return s, nil
	case told:
		s.Evidence = append(s.Evidence, checks.Seen(setting.From.Source, setting.From.Text))
	}
	s.Want = "no swap, or failSwapOn false"
	s.Got, s.Pass = "swap on "+strings.Join(devices, ", "), false
	off := "swapoff " + strings.Join(devices, " ")
	if strings.Contains(s.Got, "/dev/zram") { // an empty configuration of zram-generator overrides the distribution's
		off += "; : >/etc/systemd/zram-generator.conf"
	}
	s.Remedy = "run `" + off + `; sed -i -E '/^\s*[^#[:space:]]\S*\s+\S+\s+swap\s/d' /etc/fstab` + "`, or set failSwapOn: false in " +
		"kubelet's configuration"
	return s, nil
}

// cannotSwap reports whether the kernel is unable to swap. Without CONFIG_SWAP the kernel has no /proc/swaps (mm/swapfile.c), and
// kubelet treats that as swap off (IsSwapOn in pkg/kubelet/util/swap). Every kernel has SwapTotal in /proc/meminfo (fs/proc/meminfo.c):
// if that is missing too, or not 0, this /proc lacks files, as with subset=pid.
func cannotSwap(h *host.Host, s *checks.State) (bool, error) {
	text, err := h.Text("/proc/meminfo")
	if err != nil {
		return false, fmt.Errorf("/proc/swaps is missing, and it is unknown whether the kernel can swap: %w", err)
	}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "SwapTotal:" && f[1] == "0" {
			s.Evidence = append(s.Evidence, checks.Seen("/proc/swaps", "missing: this kernel cannot swap"),
				checks.Seen("/proc/meminfo", strings.Join(f, " ")))
			return true, nil
		}
	}
	return false, nil
}
