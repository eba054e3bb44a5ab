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

// retryTime is longer than Calico's agent waits between two attempts.
const retryTime = 5 * time.Minute

// ipsetRevision: the ipset in Calico's image does not know what a newer one has made.
func ipsetRevision() checks.Problem {
	return checks.Problem{
		Name: "ipset.revision", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "Calico's agent cannot read a set of the kernel: its ipset is older than the one that made it.",
		Symptom: "calico-node is not ready, on nodes with a new distribution only; new Pods get addresses and no traffic.",
		How: "The log of the container calico-node says \"Kernel and userspace incompatible: settype ... with revision ... not supported by " +
			"userspace\", and goes on for less than 5 minutes after that. The kernel does not say what the container's ipset knows: 7.11, " +
			"which Calico 3.30 still has, knows hash:ip up to revision 5.",
		Remedy: "take a Calico with a newer ipset; until then remove the sets that nobody else uses (ipset list -t shows revisions and " +
			"references; ipset destroy NAME) and restart the Pod",
		TradeOff: "A set that is removed is missing until its program makes it again; one that rules refer to cannot be.",
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
			continue // the Pod went meanwhile
		}
		if err != nil {
			return s, err
		}
		found = true
		if set := unreadable(string(text)); set != "" {
			s.Evidence = append(s.Evidence, checks.Seen(name, set))
			s.Differs(set, "")
		}
	}
	if !found {
		s.Skip = "Calico's agent does not run here"
	}
	return s, nil
}

// newestLog returns the log of a container's last start, which kubelet counts in the file's name; "" for none.
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

// unreadable returns the set that the end of a log complains about, "" where it has gone on without.
func unreadable(log string) (set string) {
	complaint := regexp.MustCompile(`incompatible: settype (\S+ with revision \d+) not supported by userspace`)
	var last, said time.Time
	for line := range strings.Lines(log) {
		stamp, _, _ := strings.Cut(line, " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			continue // the first one is cut
		}
		last = at
		if m := complaint.FindStringSubmatch(line); m != nil {
			set, said = m[1], at
		}
	}
	if last.Sub(said) > retryTime {
		return ""
	}
	return set
}
