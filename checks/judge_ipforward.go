package checks

import (
	"context"
	"strings"

	"nodegate/host"
	"nodegate/host/config"
	"nodegate/policy"
)

// ipForwardWriters: ip_forward is on now, and somebody will turn it off.
func ipForwardWriters() Judgement {
	return Judgement{
		Name: "ip-forward.writers", Stages: []Stage{Boot, Run}, Severity: policy.Warn,
		Detects:  "IPv4 forwarding is off, or a configuration file turns it off at the next boot or reload.",
		Symptom:  "Pods reach Pods of their own node only; often hours later, after an update ran `sysctl --system` or restarted networkd.",
		How:      "net.ipv4.ip_forward is not 1; or sysctl.d, /etc/sysctl.conf or, from systemd 256, networkd's IPv4Forwarding sets it to 0.",
		Remedy:   "take the line out, and set net.ipv4.ip_forward=1 in the policy",
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/setup/production-environment/container-runtimes/",
		Inspect:  inspectIPForward,
	}
}

func inspectIPForward(ctx context.Context, h *host.Host, p *policy.Policy) (State, error) {
	const key = "net/ipv4/ip_forward"
	s := State{Want: "1, and nothing sets it to 0", Got: "1, and nothing sets it to 0", Holds: true}
	now, err := h.ReadSysctl(key)
	if err != nil {
		return s, err
	}
	s.Evidence = []Evidence{{"/proc/sys/" + key, now}}
	var wrong, remedies []string
	if now != "1" {
		s.Cause = sysctlCause(p, key)
		wrong, remedies = append(wrong, "is "+now), append(remedies, "run: sysctl -w net.ipv4.ip_forward=1")
	}
	found, err := forwardingOff(ctx, h)
	if err != nil && wrong == nil {
		return s, err // that it is off now is certain without it
	}
	for _, f := range found {
		wrong, remedies = append(wrong, "0 by "+f.Source), append(remedies, "take \""+f.Text+"\" out of "+f.Source)
		s.Evidence = append(s.Evidence, f)
	}
	if wrong != nil {
		s.Holds, s.Got, s.Remedy = false, strings.Join(wrong, ", "), strings.Join(remedies, "; ")
	}
	return s, nil
}

// forwardingOff is the lines that turn forwarding off and win.
func forwardingOff(ctx context.Context, h *host.Host) ([]Evidence, error) {
	boot, reload, err := sysctlFiles(h)
	if err != nil {
		return nil, err
	}
	const key = "net/ipv4/ip_forward"
	atBoot, _ := boot.Winner(key, otherNames(key)...)
	later, _ := reload.Winner(key, otherNames(key)...)
	var found []Evidence
	for _, w := range winners(atBoot, later) {
		if w.Value == "0" {
			found = append(found, Evidence{w.At(), policy.Key(w.Key).String() + " = 0"})
		}
	}
	e, _, err := networkdForwarding(ctx, h)
	if on, valid := config.ParseBool(e.Value); valid && !on {
		found = append(found, Evidence{e.At(), e.Key + "=" + e.Value})
	}
	return found, err
}

// networkdForwarding is networkd's global setting, where networkd runs and is
// new enough to have it.
func networkdForwarding(ctx context.Context, h *host.Host) (config.Entry, bool, error) {
	on, _, err := unitOn(ctx, h, "systemd-networkd.service")
	if err != nil || !on {
		return config.Entry{}, false, err
	}
	entries, err := networkdConfig(h)
	if err != nil {
		return config.Entry{}, false, err
	}
	e, set := config.Last(entries, "Network", "IPv4Forwarding")
	if !set {
		return config.Entry{}, false, nil
	}
	version, _, err := systemdVersion(h)
	if err != nil || version < 256 {
		return config.Entry{}, false, err
	}
	return e, true, nil
}
