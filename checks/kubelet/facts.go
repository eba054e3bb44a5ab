package kubelet

import (
	"context"
	"errors"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/service"
	"nodegate/policy"
)

// facts: the checks of kubelet are skipped if they cannot know kubelet's arguments. That must not look like a pass.
func facts() checks.Problem {
	return checks.Problem{
		Name: "kubelet.facts", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn, Later: true,
		Detects: "kubelet's command line or configuration cannot be read from its unit, so the checks that need it are skipped.",
		Symptom: "The checks that need kubelet's command line, such as kubelet.config and kubelet.values, are skipped, and " +
			"a kubelet that exits over its configuration is not noticed.",
		How: "Reads kubelet.service with its drop-ins and files of variables, or files of k3s, RKE2, k0s, MicroK8s or Canonical Kubernetes. " +
			"The result is unknown if the gate's unit exists and does not run kubelet itself, for example a script. Wrappers such as nice and a " +
			"shell's exec are looked through. Skipped if the gate's unit does not exist.",
		Remedy: "start kubelet itself in ExecStart= of kubelet.service; to hold such a node until then, set severity = \"block\" in the " +
			"policy's check block",
		Ref:     "https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/",
		Inspect: inspectFacts,
	}
}

func inspectFacts(_ context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.Passing("kubelet's command line is known")
	u, err := service.Read(h.Files, p.Gate.Unit)
	if err != nil {
		return s, err
	}
	if u.Path == "" {
		s.Skip = p.Gate.Unit + " does not exist here"
		return s, nil
	}
	k, err := h.Kubelet()
	switch {
	case err != nil:
		s.Cause = "kubelet.config"
		return s, err
	case k.Holder != "":
		s.Got = "kubelet's options are known; " + k.Unknown
	case k.Command == nil && !strings.Contains(k.Unknown, p.Gate.Unit):
		return s, errors.New("kubelet's command line is unknown: " + p.Gate.Unit + " is not known to run kubelet, and " + k.Unknown)
	case k.Command == nil:
		return s, errors.New("kubelet's command line is unknown, so checks that need it are skipped: " + k.Unknown)
	}
	return s, nil
}
