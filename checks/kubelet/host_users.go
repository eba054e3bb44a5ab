package kubelet

import (
	"context"
	"errors"
	"io/fs"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// hostUsers: Pods with users of their own need user namespaces.
func hostUsers() checks.Problem {
	return checks.Problem{
		Name: "kubelet.host-users", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "The kernel makes no user namespaces, and this kubelet takes Pods with hostUsers: false.",
		Symptom: "Such a Pod stays in ContainerCreating, \"no space left on device\", on this node only.",
		How: "user.max_user_namespaces is 0, as hardening guides have it, and kubelet is 1.33 or later: from there on such Pods need no " +
			"feature gate.",
		Remedy: "run: sysctl -w user.max_user_namespaces=15000; and put it into the policy",
		TradeOff: "More of the kernel is open to users without rights: flaws in it were used from user namespaces. Pods without root inside " +
			"are worth it.",
		Ref:     "https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/",
		Inspect: inspectHostUsers,
	}
}

func inspectHostUsers(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	const key = "user/max_user_namespaces"
	s := checks.Passing("user namespaces")
	if minor, err := h.KubeletMinor(ctx); err != nil || minor < 33 {
		s.Skip = "kubelet is older than 1.33, or is not here"
		return s, err
	}
	value, err := h.ReadSysctl(key)
	if errors.Is(err, fs.ErrNotExist) {
		s.Differs("a kernel without them", "take a kernel with CONFIG_USER_NS")
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.Evidence = []checks.Evidence{checks.Seen("/proc/sys/"+key, value)}
	if value == "0" {
		s.Differs("none", "")
	}
	return s, nil
}
