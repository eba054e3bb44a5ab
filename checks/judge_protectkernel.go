package checks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"nodegate/internal/host"
	"nodegate/policy"
)

// kernelDefaults is the values that kubelet's protectKernelDefaults demands, in
// the order in which kubelet names them.
func kernelDefaults() [][2]string {
	return [][2]string{
		{"vm/overcommit_memory", "1"}, {"vm/panic_on_oom", "0"}, {"kernel/panic", "10"},
		{"kernel/panic_on_oops", "1"}, {"kernel/keys/root_maxkeys", "1000000"}, {"kernel/keys/root_maxbytes", "25000000"},
	}
}

// protectKernelDefaults: kubelet refuses to start over six parameters.
func protectKernelDefaults() Problem {
	return Problem{
		Name: "kubelet.protect-kernel-defaults", Stages: []Stage{Boot, Run}, Severity: policy.Warn,
		Detects: "kubelet is told to protect the kernel's defaults and a parameter is not what it demands.",
		Symptom: "kubelet exits: \"invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0\".",
		How: "The six parameters are compared exactly, unless kubelet's configuration is here and leaves protectKernelDefaults off: " +
			"then kubelet writes them itself.",
		Remedy:   "put the six parameters into the policy, as the built-in policy kubernetes does",
		TradeOff: "A kernel that oopses then panics, and restarts the node after 10 s.",
		Ref:      "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/",
		Inspect:  inspectProtectKernelDefaults,
	}
}

func inspectProtectKernelDefaults(_ context.Context, h *host.Host, p *policy.Policy) (State, error) {
	k, err := readKubelet(h)
	if err != nil {
		return State{}, err
	}
	setting := k.values["protectKernelDefaults"]
	if k.found && setting.value != "true" {
		return State{Skip: "kubelet's protectKernelDefaults is off: it writes the six parameters itself"}, nil
	}
	s := State{Want: "the six values that kubelet demands", Got: "the six values that kubelet demands", Pass: true}
	if setting.value != "" {
		s.Evidence = []Evidence{setting.from}
	}
	var wrong, commands []string
	for _, d := range kernelDefaults() {
		key := policy.Key(d[0])
		got, err := h.ReadSysctl(d[0])
		if errors.Is(err, fs.ErrNotExist) {
			got, err = "no such parameter", nil
		}
		if err != nil {
			return s, err
		}
		if got != d[1] {
			wrong = append(wrong, fmt.Sprintf("%s=%s", key, got))
			commands = append(commands, fmt.Sprintf("%s=%s", key, d[1]))
			s.Evidence = append(s.Evidence, Evidence{"/proc/sys/" + d[0], got})
			if s.Cause == "" {
				s.Cause = sysctlCause(p, d[0])
			}
		}
	}
	if wrong != nil {
		s.Pass, s.Got = false, strings.Join(wrong, " ")
		s.Remedy = "run: sysctl -w " + strings.Join(commands, " ") + "; and put them into the policy"
	}
	return s, nil
}
