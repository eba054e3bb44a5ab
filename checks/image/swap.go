package image

import (
	"context"
	"path"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// swap: kubelet does not start on a node with swap unless configured to, and the check "swap" then holds every node of the image.
func swap() checks.Problem {
	return checks.Problem{
		Name: "image.swap", Stages: []checks.Stage{checks.Image}, NotAll: true, Severity: policy.Block,
		Detects: "The image turns swap on at boot, and its kubelet is not configured to tolerate it.",
		Symptom: "kubelet exits on every node of the image: \"running with swap on is not supported, please disable swap\".",
		How: "Looks for swap in /etc/fstab without noauto, and for enabled .swap units. Passes if kubelet's configuration in the image " +
			"sets failSwapOn to false. The check `swap` finds zram and the swap of services on the node.",
		Remedy: "remove the swap from the image, or set failSwapOn: false in kubelet's configuration",
		TradeOff: "If kubelet's configuration is written at boot and sets failSwapOn: false, set severity = \"warn\" in the policy's check " +
			"block, or remove the block.",
		Ref:     "https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/",
		Inspect: inspectSwap,
	}
}

// swaps collects what turns swap on, and the commands that remove it.
type swaps struct {
	finder
	state           *checks.State
	kinds, remedies []string
}

func (s *swaps) add(kind, source, text, remedy string) {
	s.state.Evidence = append(s.state.Evidence, checks.Seen(source, text))
	if !slices.Contains(s.kinds, kind) {
		s.kinds = append(s.kinds, kind)
	}
	if !slices.Contains(s.remedies, remedy) {
		s.remedies = append(s.remedies, remedy)
	}
}

func inspectSwap(_ context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	state := checks.Passing("no swap")
	if strings.HasPrefix(p.Gate.Unit, "k3s") || strings.HasPrefix(p.Gate.Unit, "rke2") {
		state.Skip = "k3s and RKE2 start kubelet with --fail-swap-on=false"
		return state, nil
	}
	s := &swaps{finder: newFinder(h), state: &state}
	for _, add := range []func() error{s.addFstab, s.addUnits} {
		if err := add(); err != nil {
			return state, err
		}
	}
	if s.kinds == nil {
		return state, nil
	}
	k, err := h.Kubelet()
	if err != nil {
		return state, err
	}
	state.Want = "no swap, or failSwapOn false"
	if setting := k.Values["failSwapOn"]; setting.Value == "false" {
		state.Got = "swap, and failSwapOn false"
		state.Evidence = append(state.Evidence, checks.Seen(setting.From.Source, setting.From.Text))
		return state, nil
	}
	state.Differs("swap by "+strings.Join(s.kinds, ", "), "run `"+strings.Join(s.remedies, "; ")+
		"`, or set failSwapOn: false in kubelet's configuration")
	return state, nil
}

func (s *swaps) addFstab() error {
	entries, err := readFstab(s.Host)
	for _, e := range entries {
		if e.kind == "swap" {
			s.add("/etc/fstab", "/etc/fstab", e.text, `sed -i -E '/^\s*[^#[:space:]]\S*\s+\S+\s+swap\s/d' `+inRoot(s.finder, "/etc/fstab"))
		}
	}
	return err
}

// off returns the command that keeps a unit from being started by a link.
func (s *swaps) off(link, unit string) string {
	if strings.HasPrefix(link, "/etc/") {
		return "rm " + inRoot(s.finder, link)
	}
	return "ln -sf /dev/null " + inRoot(s.finder, "/etc/systemd/system/"+unit)
}

func (s *swaps) addUnits() error {
	for _, dir := range []string{"/etc", "/usr/lib", "/lib"} {
		for _, kind := range []string{"wants", "requires"} {
			links, err := s.glob(dir + "/systemd/system/*." + kind + "/*.swap")
			if err != nil {
				return err
			}
			for _, link := range links {
				unit := path.Base(link)
				if to, err := s.Files.ReadLink("/etc/systemd/system/" + unit); err == nil && to == "/dev/null" {
					continue
				}
				s.add(unit, link, "enabled", s.off(link, unit))
			}
		}
	}
	return nil
}
