package kubelet

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// hosts: programs with a resolver of their own ask DNS for a name that /etc/hosts lacks.
func hosts() checks.Problem {
	return checks.Problem{
		Name: "kubelet.hosts", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn, Later: true, AtBoot: true,
		Detects: "/etc/hosts has no line for localhost.",
		Symptom: "Go programs on the node and Pods in its network ask DNS for localhost, and wait for the answer or get another machine's " +
			"address: probes of Calico and MicroK8s fail.",
		How:     "No line of /etc/hosts gives a loopback address the name localhost. Go's resolver reads the file, and no NSS module.",
		Remedy:  "run `echo '127.0.0.1 localhost' >>/etc/hosts`; with cloud-init, set manage_etc_hosts to localhost",
		Ref:     "https://github.com/projectcalico/calico/issues/6963",
		Inspect: inspectHosts,
	}
}

func inspectHosts(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("localhost")
	text, err := h.Text("/etc/hosts")
	if errors.Is(err, fs.ErrNotExist) {
		s.Differs("/etc/hosts is missing", "")
		return s, nil
	}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if f := strings.Fields(line); len(f) > 1 && (strings.HasPrefix(f[0], "127.") || f[0] == "::1") && slices.Contains(f[1:], "localhost") {
			return s, err
		}
	}
	if err == nil {
		s.Differs("no line for localhost", "")
	}
	return s, err
}
