package kubeproxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/input"
)

// Health is the page of :10256/healthz or /livez. With status 200, LastUpdated is the time of the
// request, not of a sync: only Status (since 1.33) has the time when the rules were last written.
type Health struct {
	OK           bool                    `json:"ok"`
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"`
	Status       map[string]FamilyHealth `json:"status,omitempty"` // by "IPv4", "IPv6"; nil before 1.33
	HasStatus    bool                    `json:"hasStatus"`        // the page has the 1.33 form, even if no family has synced
	clockSet     time.Time               // ages of earlier times count from then on, because they cannot be compared with the clock
}

// FamilyHealth is the state of one address family.
type FamilyHealth struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// ParseHealth reads the body of healthz or livez and its HTTP status (0 if unknown). It reads both
// forms: until 1.32 times as Go prints them, since 1.33 RFC 3339 times with healthy and status.
func ParseHealth(body []byte, httpStatus int) (Health, error) {
	var raw struct {
		LastUpdated, CurrentTime string
		NodeEligible, Healthy    *bool
		Status                   map[string]FamilyHealth
	}
	if err := json.Unmarshal(bytes.TrimSpace(body), &raw); err != nil {
		return Health{}, input.Unreadable(0, "reading kube-proxy's health: %v", err)
	}
	h := Health{OK: httpStatus == 0 || httpStatus == 200, NodeEligible: raw.NodeEligible, Status: raw.Status, HasStatus: raw.Healthy != nil}
	if raw.Healthy != nil && httpStatus == 0 {
		h.OK = *raw.Healthy
	}
	var err error
	if h.LastUpdated, err = healthTime(raw.LastUpdated); err != nil {
		return Health{}, err
	}
	if h.CurrentTime, err = healthTime(raw.CurrentTime); err != nil {
		return Health{}, err
	}
	return h, nil
}

// healthTime reads RFC 3339 and the form of time.Time.String, with its monotonic clock.
func healthTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	s, _, _ = strings.Cut(s, " m=")
	const printed = "2006-01-02 15:04:05.999999999 -0700"
	for _, layout := range []string{time.RFC3339Nano, printed + " MST", printed + " -0700"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, input.Unreadable(0, "reading kube-proxy's health: a time of another format")
}

// Intervals of kube-proxy.
const (
	syncTimeout = time.Minute             // an update waits at most this long: 2 x syncPeriod
	fullSync    = time.Hour + time.Minute // the rules are written at least this often, with slack
)

// JudgeHealth judges the page of healthz or livez. An empty result proves little: a dead watch
// queues no change, so kube-proxy stays healthy (kubernetes#87615).
func JudgeHealth(h Health, now time.Time) []proxy.Finding {
	out := proxy.NewCollector()
	ineligible := h.NodeEligible != nil && !*h.NodeEligible
	if ineligible {
		out.Addf("kubeproxy.sync.ineligible", "kube-proxy reports that its node is not eligible: the node is being deleted or is tainted for it")
	}
	if h.HasStatus && len(h.Status) == 0 || !h.HasStatus && h.OK && h.LastUpdated.IsZero() {
		out.Addf("kubeproxy.sync.never", "kube-proxy has not written its rules since it started; it returns status 200 nevertheless")
		return out.List
	}
	sick := false
	for _, family := range []string{"IPv4", "IPv6"} {
		f, ok := h.Status[family]
		now := now.Add(-max(0, h.clockSet.Sub(f.LastUpdated)))
		switch {
		case !ok:
		case !f.Healthy:
			sick = true
			out.Addf("kubeproxy.sync.unhealthy",
				"kube-proxy is not healthy for %s: rules last written %s ago, an update is pending", family, age(now, f.LastUpdated))
		case now.Sub(f.LastUpdated) > fullSync:
			sick = true
			out.Addf("kubeproxy.sync.dead",
				"rules for %s were last written %s ago; kube-proxy writes them at least once an hour", family, age(now, f.LastUpdated))
		}
	}
	if !h.OK && !sick && !ineligible {
		out.Addf("kubeproxy.sync.unhealthy", "kube-proxy returns status 503: an update has been pending for more than %s", syncTimeout)
	}
	return out.List
}

// UnreadableAnswer returns the finding for one of kube-proxy's own pages that could not be fetched or read: Unknown.
func UnreadableAnswer(endpoint string, err error) proxy.Finding {
	return proxy.NewFinding(proxy.Finding{Name: "kubeproxy.sync.unreadable", Message: fmt.Sprintf("%s: %v", endpoint, err)})
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func age(now, then time.Time) string {
	if then.IsZero() {
		return "an unknown time"
	}
	return now.Sub(then).Round(time.Second).String()
}
