package kubelet

import (
	"cmp"
	"context"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// healthzPort: kubelet runs without its health page, and what asks it calls the node broken.
func healthzPort() checks.Problem {
	return checks.Problem{
		Name: "kubelet.healthz-port", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects:  "Another program listens on the port of kubelet's health page.",
		Symptom:  "kubelet runs and logs \"Failed to start healthz server\" every 5 s; kubeadm waits for it, and gives up.",
		How:      "As kubelet.ports, with healthzBindAddress (127.0.0.1) and healthzPort (10248, 0 for none).",
		Remedy:   "stop the other program, or set healthzPort in kubelet's configuration",
		TradeOff: "kubeadm asks port 10248 and no other.",
		Ref:      "https://kubernetes.io/docs/reference/networking/ports-and-protocols/",
		Inspect: func(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			k, err := h.Kubelet()
			if err != nil {
				return checks.State{Cause: "kubelet.config"}, err
			}
			return inspectPort(h, cmp.Or(k.Values["healthzBindAddress"].Value, "127.0.0.1"), cmp.Or(k.Values["healthzPort"].Value, "10248"))
		},
	}
}
