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

// nmCloudSetup: NetworkManager configures a cloud's addresses itself.
func nmCloudSetup() checks.Problem {
	return checks.Problem{
		Name: "nm-cloud-setup", Stages: []checks.Stage{checks.Image, checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "nm-cloud-setup writes routes and rules (tables 30200 and 30400) for the addresses that a cloud's CNI gives to Pods.",
		Symptom: "Packets from Pods leave through the wrong interface and are dropped; the fault comes and goes with the timer.",
		How: "nm-cloud-setup.service or nm-cloud-setup.timer is active or enabled, or its routing rules exist: rules " +
			"from an address to table 30200 or 30400 plus the interface's number (0 to 99), with a priority equal to the table's number.",
		Remedy:   "run `systemctl disable --now nm-cloud-setup.service nm-cloud-setup.timer`, then reboot the node to remove the rules",
		TradeOff: "Secondary addresses that the CNI does not manage are no longer configured.",
		Ref:      "https://docs.rke2.io/known_issues#networkmanager",
		Inspect:  inspectNMCloudSetup,
	}
}

func inspectNMCloudSetup(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s, err := inspectUnits(ctx, h, "nm-cloud-setup.service", "nm-cloud-setup.timer")
	if err != nil || !h.Live() {
		return s, err
	}
	rules, err := h.Links.RoutingRules(ctx)
	if err != nil {
		if !s.Pass {
			return s, nil // the unit is on, so the rules do not matter
		}
		return s, err
	}
	var tables []string
	for _, r := range rules {
		if !nmCloudTable(r) {
			continue
		}
		// Rules come first, because a reader looks for them.
		rule := fmt.Sprintf("%d: from %s lookup %d, %d routes", r.Priority, r.From, r.Table, r.Routes)
		s.Evidence = slices.Insert(s.Evidence, len(tables), checks.Seen("ip rule", rule))
		tables = append(tables, strconv.Itoa(r.Table))
	}
	if tables == nil {
		return s, nil
	}
	slices.Sort(tables)
	left := "its rules to table " + strings.Join(slices.Compact(tables), ", ")
	if s.Pass {
		s.Differs("off, but "+left+" remain", "reboot the node: disabling nm-cloud-setup does not remove its rules")
	} else {
		s.Got += ", and " + left + " exist"
	}
	return s, nil
}

// nmCloudTable recognises a rule of nm-cloud-setup by the numbers in
// NetworkManager's src/nm-cloud-setup/main.c.
func nmCloudTable(r host.RoutingRule) bool {
	ofInterface := func(first int) bool { return r.Table >= first && r.Table < first+100 }
	return r.From != "" && r.Priority == r.Table && (ofInterface(30200) || ofInterface(30400))
}
