package writers

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

// nmCloudSetup: NetworkManager's own idea of a cloud's addresses.
func nmCloudSetup() checks.Problem {
	return checks.Problem{
		Name: "nm-cloud-setup", Stages: []checks.Stage{checks.Image, checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "nm-cloud-setup writes routes and rules (tables 30200 and 30400) for the addresses that a cloud's CNI gives to Pods.",
		Symptom: "Packets of Pods leave through the wrong interface and are dropped; it comes and goes with the timer.",
		How: "nm-cloud-setup.service or nm-cloud-setup.timer is active or enabled, or its routing rules stand: one from an address to table " +
			"30200 or 30400, " +
			"plus the interface's number up to 99, whose priority is the table's number.",
		Remedy:   "run: systemctl disable --now nm-cloud-setup.service nm-cloud-setup.timer; then restart the node, the rules stay",
		TradeOff: "Secondary addresses that the CNI does not manage are no longer set up.",
		Ref:      "https://docs.rke2.io/known_issues#networkmanager",
		Inspect:  inspectNMCloudSetup,
	}
}

func inspectNMCloudSetup(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s, err := unitOff(ctx, h, "nm-cloud-setup.service", "nm-cloud-setup.timer")
	if err != nil || !h.Live() {
		return s, err
	}
	rules, err := h.Links.RoutingRules(ctx)
	if err != nil {
		if !s.Pass {
			return s, nil // the unit is on, whatever the rules are
		}
		return s, err
	}
	var tables []string
	for _, r := range rules {
		if !nmCloudTable(r) {
			continue
		}
		// They come first: they are what a person looks for.
		rule := fmt.Sprintf("%d: from %s lookup %d, %d routes", r.Priority, r.From, r.Table, r.Routes)
		s.Evidence = slices.Insert(s.Evidence, len(tables), checks.Seen("ip rule", rule))
		tables = append(tables, strconv.Itoa(r.Table))
	}
	if tables == nil {
		return s, nil
	}
	slices.Sort(tables)
	stand := "its rules stand, to table " + strings.Join(slices.Compact(tables), ", ")
	if s.Pass {
		s.Differs("off, and "+stand, "restart the node: nobody takes back rules of nm-cloud-setup that was on before")
	} else {
		s.Got += ", and " + stand
	}
	return s, nil
}

// nmCloudTable recognises a rule of nm-cloud-setup by the numbers in
// NetworkManager's src/nm-cloud-setup/main.c.
func nmCloudTable(r host.RoutingRule) bool {
	ofInterface := func(first int) bool { return r.Table >= first && r.Table < first+100 }
	return r.From != "" && r.Priority == r.Table && (ofInterface(30200) || ofInterface(30400))
}
