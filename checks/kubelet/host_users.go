package kubelet

import (
	"context"
	"errors"
	"io/fs"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// hostUsers: Pods with hostUsers: false need user namespaces.
func hostUsers() checks.Problem {
	return checks.Problem{
		Name: "kubelet.host-users", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "The kernel does not allow user namespaces, and this kubelet accepts Pods with hostUsers: false.",
		Symptom: "Such a Pod stays in ContainerCreating with \"no space left on device\", on this node only.",
		How: "user.max_user_namespaces is 0, as hardening guides recommend, and kubelet is 1.33 or later, which needs " +
			"no feature gate for such Pods.",
		Remedy: "run `sysctl -w user.max_user_namespaces=15000`, and add it to the policy",
		TradeOff: "Unprivileged users reach more of the kernel, and kernel flaws have been exploited through user " +
			"namespaces. Pods whose root is not the node's root are worth it.",
		Ref:     "https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/",
		Inspect: inspectHostUsers,
	}
}

func inspectHostUsers(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	const key = "user/max_user_namespaces"
	s := checks.Passing("user namespaces allowed")
	if minor, err := h.KubeletMinor(ctx); err != nil || minor < 33 {
		s.Skip = "kubelet is older than 1.33 or not installed"
		return s, err
	}
	value, err := h.ReadSysctl(key)
	if errors.Is(err, fs.ErrNotExist) {
		s.Differs("a kernel without user namespaces", "use a kernel with CONFIG_USER_NS")
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.Evidence = []checks.Evidence{checks.Seen("/proc/sys/"+key, value)}
	if value == "0" {
		s.Differs("not allowed", "")
	}
	return s, nil
}
