package writers

import (
	"context"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// ipForwardWriters: ip_forward is on now, and somebody will turn it off.
func ipForwardWriters() checks.Problem {
	return checks.Problem{
		Name: "ip-forward.writers", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "IPv4 forwarding is off, or a configuration file turns it off at the next boot or reload.",
		Symptom: "Pods reach Pods of their own node only; often hours later, after an update ran `sysctl --system` or restarted networkd.",
		How: "net.ipv4.ip_forward is not 1; or sysctl.d or /etc/sysctl.conf sets it to 0, or, from systemd 256 on, IPv4Forwarding= does: in " +
			"networkd.conf for the node, in " +
			"the .network file that matches one of its links for packets from there. IPv6Forwarding= as well, where the policy asks for IPv6 " +
			"forwarding.",
		Remedy:   "take the line out, and set net.ipv4.ip_forward=1 in the policy",
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/setup/production-environment/container-runtimes/",
		Inspect:  inspectIPForward,
	}
}

func inspectIPForward(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	const key = "net/ipv4/ip_forward"
	s := checks.Passing("1, and nothing sets it to 0")
	now, err := h.ReadSysctl(key)
	if err != nil {
		return s, err
	}
	s.Evidence = []checks.Evidence{checks.Seen("/proc/sys/"+key, now)}
	var wrong, remedies []string
	if now != "1" {
		s.Cause = checks.SysctlCause(p, key)
		wrong, remedies = append(wrong, "is "+now), append(remedies, "run: sysctl -w net.ipv4.ip_forward=1; and put it into the policy")
		// This may not be the reason: it is evidence only.
		forgotten, _ := forgottenIPForward(ctx, h)
		s.Evidence = append(s.Evidence, forgotten...)
	}
	found, err := forwardingOff(ctx, h, p)
	if err != nil && wrong == nil {
		return s, err
	}
	for _, f := range found {
		on := ""
		if f.link != "" {
			on = "on " + f.link + " "
		}
		wrong, remedies = append(wrong, "0 "+on+"by "+f.Source), append(remedies, "take \""+f.Text+"\" out of "+f.Source)
		s.Evidence = append(s.Evidence, f.Evidence)
	}
	if found != nil {
		s.Cause = "" // the parameter alone does not mend it
	}
	if wrong != nil {
		s.Differs(strings.Join(wrong, ", "), strings.Join(remedies, "; "))
	}
	return s, nil
}

// offLine is a line that turns off forwarding of packets from one link, or from all.
type offLine struct {
	checks.Evidence
	link string
}

// forwardingOff returns the lines that turn forwarding off and win.
func forwardingOff(ctx context.Context, h *host.Host, p *policy.Policy) ([]offLine, error) {
	boot, reload, err := sysctlFiles(h)
	if err != nil {
		return nil, err
	}
	const key = "net/ipv4/ip_forward"
	atBoot, _ := boot.Winner(key, otherNames(key)...)
	later, _ := reload.Winner(key, otherNames(key)...)
	var found []offLine
	for _, w := range winners(atBoot, later) {
		if w.Value == "0" {
			found = append(found, offLine{Evidence: checks.Seen(w.At(), policy.Key(w.Key).String()+" = 0")})
		}
	}
	for _, setting := range forwardingSettings(p) {
		e, set, err := networkdForwarding(ctx, h, setting.name)
		if set && isOff(e) {
			found = append(found, offLine{Evidence: checks.Seen(e.At(), e.Key+"="+e.Value)})
		}
		if err != nil {
			return found, err
		}
		onLinks, err := forwardingOffOn(ctx, h, setting)
		found = append(found, onLinks...)
		if err != nil {
			return found, err
		}
	}
	return found, nil
}
