package kubelet

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// inotifyLimits: kubelet and every program that follows logs share two small limits.
func inotifyLimits() checks.Problem {
	return checks.Problem{
		Name: "inotify.limits", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "The inotify limits are too low for a node.",
		Symptom: "\"too many open files\" from kubelet or a Pod, or \"no space left on device\" from `kubectl logs " +
			"-f`, although neither is true.",
		How:      "fs.inotify.max_user_watches is below 524288, or fs.inotify.max_user_instances is below 512.",
		Remedy:   "set fs.inotify.max_user_watches=524288 and fs.inotify.max_user_instances=8192, as kops does",
		TradeOff: "Each watch in use takes about 1 KiB of kernel memory; a higher limit alone costs nothing.",
		Ref:      "https://man7.org/linux/man-pages/man7/inotify.7.html",
		Inspect:  inspectInotify,
	}
}

func inspectInotify(_ context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.State{Pass: true}
	var causes checks.Causes
	var want, got, commands []string
	for _, limit := range []struct {
		name  string
		least uint64
		write string
	}{{"max_user_watches", 524288, "524288"}, {"max_user_instances", 512, "8192"}} {
		key := "fs/inotify/" + limit.name
		n, err := h.SysctlNumber(key)
		if err != nil {
			return s, err
		}
		text := strconv.FormatUint(n, 10)
		want = append(want, fmt.Sprintf("%s>=%d", limit.name, limit.least))
		got = append(got, limit.name+"="+text)
		s.Evidence = append(s.Evidence, checks.Seen("/proc/sys/"+key, text))
		if n < limit.least {
			s.Pass = false
			commands = append(commands, "fs.inotify."+limit.name+"="+limit.write)
			causes.Add(checks.SysctlCause(p, key))
		}
	}
	s.Want, s.Got = strings.Join(want, " "), strings.Join(got, " ")
	s.Cause = causes.One()
	if !s.Pass {
		s.Remedy = "run `sysctl -w " + strings.Join(commands, " ") + "`, and add it to the policy"
	}
	return s, nil
}
