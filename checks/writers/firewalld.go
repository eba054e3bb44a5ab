package writers

import (
	"context"
	"regexp"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// firewalld: two programs own one packet filter.
func firewalld() checks.Problem {
	return checks.Problem{
		Name: "firewalld", Stages: []checks.Stage{checks.Image, checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "firewalld runs alongside kube-proxy and the CNI, or nftables.service deletes their rules.",
		Symptom: "Pods cannot reach Services or other nodes; after `firewall-cmd --reload` rules are missing, or rejecting rules come first.",
		How: "firewalld.service is active or enabled, or nftables.service is and its file (/etc/nftables.conf, /etc/sysconfig/nftables.conf) " +
			"has `flush ruleset`.",
		Remedy: "run `systemctl disable --now firewalld.service`",
		TradeOff: "The node's own ports are reachable from its network: filter them in the cloud's security groups or " +
			"with a host policy of the CNI.",
		Ref: "https://docs.tigera.io/calico/latest/getting-started/kubernetes/requirements",
		Inspect: func(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			s, err := inspectUnits(ctx, h, "firewalld.service")
			if err != nil || !s.Pass {
				return s, err
			}
			return s, inspectFlush(ctx, h, &s)
		},
	}
}

// inspectFlush detects an enabled nftables.service whose file deletes every program's rules at each start and reload.
func inspectFlush(ctx context.Context, h *host.Host, s *checks.State) error {
	const unit = "nftables.service"
	on, _, err := h.UnitOn(ctx, unit)
	for _, name := range []string{"/etc/nftables.conf", "/etc/sysconfig/nftables.conf"} {
		if err != nil || !on {
			return err
		}
		var text []byte
		if text, _, err = config.ReadIfAny(h.Files, name); regexp.MustCompile(`(?m)^\s*flush\s+ruleset`).Match(text) {
			s.Evidence = append(s.Evidence, checks.Seen(name, "flush ruleset"))
			s.Differs(unit+" deletes all rules at each start and reload", "in "+name+" delete only its own tables, with "+
				"`table inet NAME; delete table inet NAME` in place of `flush ruleset`; or run `systemctl disable "+unit+"`")
		}
	}
	return err
}

// inspectUnits passes if none of the units is active or enabled.
func inspectUnits(ctx context.Context, h *host.Host, units ...string) (checks.State, error) {
	s := checks.Passing("off")
	for _, unit := range units {
		on, said, err := h.UnitOn(ctx, unit)
		if err != nil {
			return s, err
		}
		s.Evidence = append(s.Evidence, said)
		if on {
			s.Got, s.Pass = unit+" is "+said.Text, false
		}
	}
	return s, nil
}
