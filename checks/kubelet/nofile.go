package kubelet

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// runtimeNofile: containers inherit the container runtime's limit on open files.
func runtimeNofile() checks.Problem {
	return checks.Problem{
		Name: "kubelet.runtime-nofile", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "The container runtime's soft limit on open files is 1024 or less, or without bound, and containers inherit it.",
		Symptom: "Envoy, databases and proxies that do not raise their own limit fail under load: \"too many open " +
			"files\". Without a bound, programs that reserve memory for each possible descriptor, such as Java and MySQL, are killed at their " +
			"start, and others spend minutes closing descriptors.",
		How: "\"Max open files\" in /proc/PID/limits of containerd or crio shows a soft limit of 1024 or less, or of more than a " +
			"hundred million. 1024 is systemd's default, and the packages of containerd 2 and of Ubuntu 24.04 do not set LimitNOFILE. " +
			"LimitNOFILE=infinity is fs.nr_open, which systemd raises to 1073741816 on most distributions, not on Debian.",
		Remedy: nofileRemedy("containerd"),
		TradeOff: "Programs that close every descriptor up to the limit at startup become slower. Programs that use " +
			"select() break with descriptors above 1023, often without an error.",
		Ref:     "https://github.com/containerd/containerd/issues/8924",
		Inspect: inspectRuntimeNofile,
	}
}

func nofileRemedy(runtime string) string {
	return "create /etc/systemd/system/" + runtime + ".service.d/nofile.conf with `[Service]` and `LimitNOFILE=1048576`, and restart the " +
		"runtime; running containers keep their limit"
}

func inspectRuntimeNofile(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("more than 1024 files, with a bound")
	processes, err := h.Processes()
	if err != nil {
		return s, err
	}
	found := false
	for _, p := range processes {
		if !slices.Contains([]string{"containerd", "crio"}, p.Name) {
			continue
		}
		limits := fmt.Sprintf("/proc/%d/limits", p.PID)
		text, exists, err := h.ReadIfAny(limits)
		if err != nil {
			return s, err
		}
		_, after, _ := strings.Cut(string(text), "Max open files")
		f := strings.Fields(after)
		if !exists || len(f) == 0 {
			continue // the process has ended
		}
		found = true
		const unbounded = 100_000_000
		if soft, err := strconv.Atoi(f[0]); err != nil || soft <= 1024 || soft > unbounded { // "unlimited" does not parse
			s.Evidence = append(s.Evidence, checks.Seen(limits, "Max open files "+strings.Join(f[:min(2, len(f))], " ")))
			s.Differs(p.Name+" has "+f[0], nofileRemedy(p.Name))
		}
	}
	if !found {
		s.Skip = "neither containerd nor crio runs here"
	}
	return s, nil
}
