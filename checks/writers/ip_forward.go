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
			"IPv4Forwarding= in networkd.conf turns it off; or forwarding is off for the link of the default route, as a .network file can " +
			"set it. IPv6Forwarding= is checked too if the policy requires IPv6 forwarding.",
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
	}
	found, err := forwardingOff(ctx, h, p)
	if err != nil && wrong == nil {
		return s, err
	}
	for _, f := range found {
		wrong, remedies = append(wrong, "set to 0 by "+f.Source), append(remedies, "remove \""+f.Text+"\" from "+f.Source)
		s.Evidence = append(s.Evidence, f)
	}
	if now == "1" {
		links, err := h.Links.DefaultRoutes(ctx)
		if err != nil && wrong == nil {
			return s, err
		}
		for _, link := range links {
			key := "net/ipv4/conf/" + link + "/forwarding"
			if own, err := h.ReadSysctl(key); err == nil && own == "0" {
				s.Evidence = append(s.Evidence, checks.Seen("/proc/sys/"+key, own))
				wrong = append(wrong, "0 on "+link)
				remedies = append(remedies, "remove IPv4Forwarding= from the .network file of "+link+", or find out what else turns it off there")
			}
		}
	}
	if found != nil {
		s.Cause = "" // setting the parameter alone does not fix this
	}
	if wrong != nil {
		s.Differs(strings.Join(wrong, ", "), strings.Join(remedies, "; "))
	}
	return s, nil
}

// forwardingOff returns the winning lines that turn forwarding off.
func forwardingOff(ctx context.Context, h *host.Host, p *policy.Policy) ([]checks.Evidence, error) {
	boot, reload, err := sysctlFiles(h)
	if err != nil {
		return nil, err
	}
	const key = "net/ipv4/ip_forward"
	atBoot, _ := boot.Winner(key, otherNames(key)...)
	later, _ := reload.Winner(key, otherNames(key)...)
	var found []checks.Evidence
	for _, w := range uniqueWinners(atBoot, later) {
		if w.Value == "0" {
			found = append(found, checks.Seen(w.At(), policy.Key(w.Key).String()+" = 0"))
		}
	}
	for _, setting := range forwardingSettings(p) {
		e, set, err := networkdForwarding(ctx, h, setting)
		if err != nil {
			return found, err
		}
		if set && isOff(e) {
			found = append(found, checks.Seen(e.At(), e.Key+"="+e.Value))
		}
	}
	return found, nil
}
