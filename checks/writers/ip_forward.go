package writers

import (
	"context"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// ipForwardWriters: ip_forward is on now, but a configuration file will turn it off.
func ipForwardWriters() checks.Problem {
	return checks.Problem{
		Name: "ip-forward.writers", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn, Weighs: true,
		Detects: "IPv4 forwarding is off, or a configuration file turns it off at the next boot or reload.",
		Symptom: "Pods reach only Pods on their own node; often hours later, after an update ran `sysctl --system` or restarted networkd.",
		How: "net.ipv4.ip_forward is not 1; or sysctl.d or /etc/sysctl.conf sets it to 0; or, from systemd 256 on, " +
			"IPv4Forwarding= turns it off, in networkd.conf for the node or in the matching .network file for packets from one link. " +
			"IPv6Forwarding= is checked too if the policy requires IPv6 forwarding.",
		Remedy:  "remove the line, and add net.ipv4.ip_forward=1 to the policy",
		Ref:     "https://kubernetes.io/docs/setup/production-environment/container-runtimes/",
		Inspect: inspectIPForward,
	}
}

func inspectIPForward(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	const key = "net/ipv4/ip_forward"
	s := checks.Passing("1, and no file sets it to 0")
	now, err := h.ReadSysctl(key)
	if err != nil {
		return s, err
	}
	s.Evidence = []checks.Evidence{checks.Seen("/proc/sys/"+key, now)}
	var wrong, remedies []string
	if now != "1" {
		s.Cause = checks.SysctlCause(p, key)
		wrong, remedies = append(wrong, now+" now"), append(remedies, "run `sysctl -w net.ipv4.ip_forward=1`, and add it to the policy")
		// This may not be the reason, so it is only evidence.
		ignored, _ := ignoredIPForward(ctx, h)
		s.Evidence = append(s.Evidence, ignored...)
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
		wrong, remedies = append(wrong, "set to 0 "+on+"by "+f.Source), append(remedies, "remove \""+f.Text+"\" from "+f.Source)
		s.Evidence = append(s.Evidence, f.Evidence)
	}
	if found != nil {
		s.Cause = "" // setting the parameter alone does not fix this
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

// forwardingOff returns the winning lines that turn forwarding off.
func forwardingOff(ctx context.Context, h *host.Host, p *policy.Policy) ([]offLine, error) {
	boot, reload, err := sysctlFiles(h)
	if err != nil {
		return nil, err
	}
	const key = "net/ipv4/ip_forward"
	atBoot, _ := boot.Winner(key, otherNames(key)...)
	later, _ := reload.Winner(key, otherNames(key)...)
	var found []offLine
	for _, w := range uniqueWinners(atBoot, later) {
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
