package packetfilter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// retryTime exceeds the wait of Calico's agent between two attempts.
const retryTime = 5 * time.Minute

// ipsetRevision detects sets that the ipset in Calico's image cannot read because a newer ipset created them.
func ipsetRevision() checks.Problem {
	return checks.Problem{
		Name: "ipset.revision", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "Calico's agent cannot read a set in the kernel: its ipset is older than the one that created the set.",
		Symptom: "calico-node is not ready, but only on nodes with a new distribution; new Pods get addresses but no traffic.",
		How: "The log of the container calico-node contains \"Kernel and userspace incompatible: settype ... with revision ... not supported " +
			"by userspace\" and continues for less than 5 minutes after it. The kernel does not show which revisions the container's ipset " +
			"supports: 7.11, which Calico 3.30 still has, supports hash:ip up to revision 5.",
		Remedy: "upgrade to a Calico with a newer ipset; until then, remove the sets that no other program uses (`ipset list -t` shows " +
			"revisions and references, `ipset destroy NAME` removes a set) and restart the Pod",
		TradeOff: "A removed set is missing until its program recreates it; a set that rules refer to cannot be removed.",
		Ref:      "https://github.com/projectcalico/calico/issues/9551",
		Inspect:  inspectIPSetRevision,
	}
}

func inspectIPSetRevision(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("sets that Calico's ipset can read")
	const logs = "/var/log/pods"
	pods, err := h.ReadDirIfAny(logs)
	if err != nil {
		return s, err
	}
	found := false
	for _, pod := range pods {
		if !strings.Contains(pod, "_calico-node-") {
			continue
		}
		name, err := newestLog(h, logs+"/"+pod+"/calico-node")
		if err != nil {
			return s, err
		}
		if name == "" {
			continue
		}
		text, err := h.Files.Tail(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the Pod was removed in the meantime
		}
		if err != nil {
			return s, err
		}
		found = true
		if set := findUnreadableSet(string(text)); set != "" {
			s.Evidence = append(s.Evidence, checks.Seen(name, set))
			s.Differs(set, "")
		}
	}
	if !found {
		s.Skip = "Calico's agent is not running"
	}
	return s, nil
}

// newestLog returns the log of a container's last start, or "". kubelet numbers the starts in the file names.
func newestLog(h *host.Host, dir string) (string, error) {
	names, err := h.ReadDirIfAny(dir)
	newest := -1
	for _, name := range names {
		if n, err := strconv.Atoi(strings.TrimSuffix(name, ".log")); err == nil {
			newest = max(newest, n)
		}
	}
	if newest < 0 {
		return "", err
	}
	return fmt.Sprintf("%s/%d.log", dir, newest), nil
}

// findUnreadableSet returns the set that the agent could not read by the end of its log, or "" if the agent continued after it.
func findUnreadableSet(log string) (set string) {
	complaint := regexp.MustCompile(`incompatible: settype (\S+ with revision \d+) not supported by userspace`)
	var last, reported time.Time
	for line := range strings.Lines(log) {
		stamp, _, _ := strings.Cut(line, " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			continue // the first line is cut off
		}
		last = at
		if m := complaint.FindStringSubmatch(line); m != nil {
			set, reported = m[1], at
		}
	}
	if last.Sub(reported) > retryTime {
		return ""
	}
	return set
}
