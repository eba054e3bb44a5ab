package kubeproxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/input"
)

// Health is the page of :10256/healthz or /livez. When rules were written, the metrics show.
type Health struct {
	OK         bool
	Ineligible bool     // the node is being deleted
	Sick       []string // families whose update waits, from 1.33 on: "IPv4"
}

// ParseHealth reads the body of healthz or livez and its HTTP status (0 if unknown).
func ParseHealth(body []byte, httpStatus int) (Health, error) {
	var raw struct {
		CurrentTime           string
		NodeEligible, Healthy *bool
		Status                map[string]struct{ Healthy bool }
	}
	err := json.Unmarshal(bytes.TrimSpace(body), &raw)
	if err == nil && raw.CurrentTime == "" {
		err = fmt.Errorf("no currentTime")
	}
	if err != nil {
		return Health{}, input.Unreadable(0, "reading kube-proxy's health: %v", err)
	}
	h := Health{OK: httpStatus == 0 || httpStatus == 200, Ineligible: raw.NodeEligible != nil && !*raw.NodeEligible}
	if raw.Healthy != nil && httpStatus == 0 {
		h.OK = *raw.Healthy
	}
	for _, family := range []string{"IPv4", "IPv6"} {
		if state, known := raw.Status[family]; known && !state.Healthy {
			h.Sick = append(h.Sick, family)
		}
	}
	return h, nil
}

// JudgeHealth judges the page of healthz or livez. An empty result proves little: a dead watch
// queues no change, so kube-proxy stays healthy (kubernetes#87615).
func JudgeHealth(h Health) []proxy.Finding {
	out := proxy.NewCollector()
	if h.Ineligible {
		out.Addf("kubeproxy.sync.ineligible", "kube-proxy reports that its node is not eligible: the node is being deleted or is tainted for it")
	}
	if len(h.Sick) > 0 {
		out.Addf("kubeproxy.sync.unhealthy", "kube-proxy is not healthy for %s: an update is pending", strings.Join(h.Sick, " and "))
	} else if !h.OK && !h.Ineligible {
		out.Addf("kubeproxy.sync.unhealthy", "kube-proxy returns status 503: an update has been pending for more than %s", syncTimeout)
	}
	return out.List
}

// UnreadableAnswer returns the finding for one of kube-proxy's own pages that could not be fetched or read: Unknown.
func UnreadableAnswer(endpoint string, err error) proxy.Finding {
	return proxy.NewFinding(proxy.Finding{Name: "kubeproxy.sync.unreadable", Message: fmt.Sprintf("%s: %v", endpoint, err)})
}
