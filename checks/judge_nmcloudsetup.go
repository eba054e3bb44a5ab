package checks

import (
	"context"

	"nodegate/host"
	"nodegate/policy"
)

// nmCloudSetup: NetworkManager's own idea of a cloud's addresses.
func nmCloudSetup() Judgement {
	return Judgement{
		Name: "nm-cloud-setup", Stages: []Stage{Image, Boot, Run}, Severity: policy.Warn,
		Detects:  "nm-cloud-setup writes routes and rules (tables 30200 and 30400) for the addresses that a cloud's CNI gives to Pods.",
		Symptom:  "Packets of Pods leave through the wrong interface and are dropped; it comes and goes with the timer.",
		How:      "nm-cloud-setup.service or nm-cloud-setup.timer is active or enabled.",
		Remedy:   "run: systemctl disable --now nm-cloud-setup.service nm-cloud-setup.timer; then restart the node, the rules stay",
		TradeOff: "Secondary addresses that the CNI does not manage are no longer set up.",
		Ref:      "https://docs.rke2.io/known_issues#networkmanager",
		Inspect: func(ctx context.Context, h *host.Host, _ *policy.Policy) (State, error) {
			return unitOff(ctx, h, "nm-cloud-setup.service", "nm-cloud-setup.timer")
		},
	}
}
