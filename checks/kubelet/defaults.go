package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// protectKernelDefaults: kubelet refuses to start unless six parameters have exact values.
func protectKernelDefaults() checks.Problem {
	return checks.Problem{
		Name: "kubelet.protect-kernel-defaults", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "kubelet runs with protectKernelDefaults, and a kernel parameter differs from the value it demands.",
		Symptom: "kubelet exits: \"invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0\".",
		How: "Compares the six parameters exactly. Skipped if kubelet's configuration exists and leaves " +
			"protectKernelDefaults off: kubelet then writes the parameters itself.",
		Remedy:   "add the six parameters to the policy, as the built-in policy kubernetes does",
		TradeOff: "A kernel oops then causes a panic, and the node reboots after 10 s.",
		Ref:      "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/",
		Inspect:  inspectProtectKernelDefaults,
	}
}

func inspectProtectKernelDefaults(_ context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	k, err := h.Kubelet()
	if err != nil {
		return checks.State{Cause: "kubelet.config"}, err
	}
	setting := k.Values["protectKernelDefaults"]
	if k.Found && setting.Value != "true" {
		return checks.State{Skip: "kubelet's protectKernelDefaults is off: it writes the six parameters itself"}, nil
	}
	s := checks.Passing("the six values that kubelet demands")
	if setting.Value != "" {
		s.Evidence = []checks.Evidence{checks.Seen(setting.From.Source, setting.From.Text)}
	}
	var wrong, commands []string
	var causes checks.Causes
	for _, d := range config.KernelDefaults() {
		key := policy.Key(d[0])
		got, err := h.ReadSysctl(d[0])
		if errors.Is(err, fs.ErrNotExist) {
			// kubelet exits for a missing parameter as for a wrong one.
			got, err = "no such parameter", nil
		}
		if err != nil {
			return s, err
		}
		if got != d[1] {
			wrong = append(wrong, fmt.Sprintf("%s=%s", key, got))
			commands = append(commands, fmt.Sprintf("%s=%s", key, d[1]))
			s.Evidence = append(s.Evidence, checks.Seen("/proc/sys/"+d[0], got))
			causes.Add(checks.SysctlCause(p, d[0]))
		}
	}
	s.Cause = causes.One()
	if wrong != nil {
		s.Differs(strings.Join(wrong, " "), "run `sysctl -w "+strings.Join(commands, " ")+"`, and add them to the policy")
	}
	return s, nil
}
