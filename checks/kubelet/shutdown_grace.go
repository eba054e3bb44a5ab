package kubelet

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// shutdownGrace: logind waits for kubelet less long than its shutdownGracePeriod.
func shutdownGrace() checks.Problem {
	return checks.Problem{
		Name: "kubelet.shutdown-grace", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn, Later: true, AtBoot: true,
		Detects: "kubelet has a shutdownGracePeriod, and a file of logind limits the delay of a shutdown to less than that.",
		Symptom: "Pods are killed at a shutdown without their grace period; kubelet logs \"Failed to start node shutdown manager ... waiting " +
			"for logind InhibitDelayMaxSec to update\".",
		How: "kubelet writes InhibitDelayMaxSec to /etc/systemd/logind.conf.d/99-kubelet.conf if logind's delay is too short. The check merges " +
			"that file with logind.conf and the logind.conf.d directories in /etc, /run and /usr/lib, as systemd does, by file name: the last " +
			"InhibitDelayMaxSec must be at least shutdownGracePeriod, or the sum of shutdownGracePeriodByPodPriority. Debian's " +
			"unattended-upgrades-logind-maxdelay.conf, for example, comes later and sets 30 seconds.",
		Remedy:   "raise InhibitDelayMaxSec in the named file, or mask it",
		TradeOff: "A shutdown may take that long.",
		Ref:      "https://github.com/kubernetes/kubernetes/issues/102818",
		Inspect: func(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectShutdownGrace(h)
		},
	}
}

// kubeletLogind is the file that kubelet writes (OverrideInhibitDelay in pkg/kubelet/nodeshutdown/systemd/inhibit_linux.go).
const kubeletLogind = "99-kubelet.conf"

func inspectShutdownGrace(h *host.Host) (checks.State, error) {
	s := checks.Passing("a delay of at least shutdownGracePeriod")
	k, found, err := readConfig(h, &s)
	if !found {
		return s, err
	}
	on, set := k.Gate("GracefulNodeShutdown")
	want, from := gracePeriod(k)
	if want <= 0 || set && !on {
		s.Skip = "kubelet has no shutdownGracePeriod"
		return s, nil
	}
	dirs := config.Dirs("systemd/logind.conf.d")
	files, err := config.Collect(h.Files, dirs, ".conf")
	if err != nil {
		return s, err
	}
	main, _, err := config.First(h.Files, config.Dirs("systemd"), "logind.conf")
	if err != nil {
		return s, err
	}
	files = slices.Insert(files, 0, main)
	entries, _ := config.ParseFiles(files) // logind ignores lines that it cannot read
	var last, own time.Duration
	var at config.Entry
	for _, e := range entries {
		delay, valid := parseTimeSpan(e.Value)
		if e.Section != "Login" || e.Key != "InhibitDelayMaxSec" || !valid {
			continue
		}
		last, at = delay, e
		if strings.HasSuffix(e.File, "/"+kubeletLogind) {
			own = delay
		}
	}
	s.Evidence = []checks.Evidence{checks.Seen(from.Source, from.Text)}
	name := at.File[strings.LastIndexByte(at.File, '/')+1:]
	switch {
	case at.File == "", last >= want: // without a file logind waits for 5 s, and kubelet adds its own
		return s, nil
	case !strings.Contains(at.File, "/logind.conf.d/") || name < kubeletLogind:
		return s, nil // kubelet's file will come later
	case name == kubeletLogind:
		return s, nil // kubelet writes /etc/systemd/logind.conf.d/99-kubelet.conf again
	}
	s.Evidence = append(s.Evidence, checks.Seen(at.At(), "InhibitDelayMaxSec="+at.Value))
	if own > 0 {
		s.Evidence = append(s.Evidence, checks.Seen("/etc/systemd/logind.conf.d/"+kubeletLogind,
			"InhibitDelayMaxSec="+own.String()+", overridden"))
	}
	s.Differs(fmt.Sprintf("%s, shutdownGracePeriod %s", last, want), fmt.Sprintf("create /etc/systemd/logind.conf.d/%s with `[Login]` and "+
		"`InhibitDelayMaxSec=%d`, which replaces %s; then run `systemctl restart systemd-logind kubelet`", name, int(want.Seconds()), at.File))
	if strings.HasPrefix(at.File, "/etc/") {
		s.Remedy = fmt.Sprintf("set InhibitDelayMaxSec=%d in %s; then run `systemctl restart systemd-logind kubelet`", int(want.Seconds()),
			at.File)
	}
	return s, nil
}

// gracePeriod returns how long kubelet delays a shutdown, and the setting with that time.
func gracePeriod(k config.Kubelet) (sum time.Duration, from config.Source) {
	setting := k.Values["shutdownGracePeriod"]
	if period, err := time.ParseDuration(setting.Value); err == nil {
		return period, setting.From
	}
	priority := regexp.MustCompile(`^shutdownGracePeriodByPodPriority\.\d+\.shutdownGracePeriodSeconds$`)
	for _, key := range slices.Sorted(maps.Keys(k.Values)) {
		if seconds, err := strconv.Atoi(k.Values[key].Value); priority.MatchString(key) && err == nil {
			sum, from = sum+time.Duration(seconds)*time.Second, k.Values[key].From
		}
	}
	return sum, from
}

// parseTimeSpan parses a span as systemd.time(7) defines it: 30, 1min 30s, infinity.
func parseTimeSpan(text string) (span time.Duration, valid bool) {
	if text == "infinity" {
		return 1<<63 - 1, true
	}
	units := map[string]time.Duration{
		"": time.Second, "us": time.Microsecond, "usec": time.Microsecond, "µs": time.Microsecond, "ms": time.Millisecond,
		"msec": time.Millisecond, "s": time.Second, "sec": time.Second, "second": time.Second, "seconds": time.Second, "m": time.Minute,
		"min": time.Minute, "minute": time.Minute, "minutes": time.Minute, "h": time.Hour, "hr": time.Hour, "hour": time.Hour,
		"hours": time.Hour, "d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
	}
	if !regexp.MustCompile(`^(\s*[0-9]+(\.[0-9]+)?\s*[a-zµ]*)+\s*$`).MatchString(text) {
		return 0, false
	}
	for _, m := range regexp.MustCompile(`([0-9]+(?:\.[0-9]+)?)\s*([a-zµ]*)`).FindAllStringSubmatch(text, -1) {
		unit, known := units[m[2]]
		number, err := strconv.ParseFloat(m[1], 64)
		if !known || err != nil {
			return 0, false
		}
		span += time.Duration(number * float64(unit))
	}
	return span, true
}
