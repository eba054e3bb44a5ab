package writers

import (
	"context"
	"fmt"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// networkdForeignRoutes: networkd removes routes and rules that it did not configure.
func networkdForeignRoutes() checks.Problem {
	return checks.Problem{
		Name: "networkd.foreign-routes", Stages: []checks.Stage{checks.Image, checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "systemd-networkd removes routes, routing rules and next hops that it did not create, including the CNI's.",
		Symptom: "After networkd restarts (an update of systemd is enough), Pods on every node lose their network at the same time.",
		How: "systemd-networkd.service is active or enabled, and ManageForeignRoutes (systemd 246), ManageForeignRoutingPolicyRules (249; " +
			"networkd removes foreign rules from 247 on) or ManageForeignNextHops (256) is not `no` in networkd.conf and its drop-ins.",
		Remedy:   "set the named options to no in /etc/systemd/networkd.conf.d/99-cni.conf, and restart systemd-networkd",
		TradeOff: "networkd no longer removes stale routes of other programs.",
		Ref:      "https://www.freedesktop.org/software/systemd/man/latest/networkd.conf.html",
		Inspect:  inspectNetworkd,
	}
}

func inspectNetworkd(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	on, said, err := h.UnitOn(ctx, "systemd-networkd.service")
	if err != nil {
		return checks.State{}, err
	}
	if !on {
		return checks.State{Skip: "systemd-networkd is off"}, nil
	}
	version, from, err := h.SystemdVersion()
	if err != nil {
		return checks.State{}, err
	}
	s := checks.State{Pass: true, Evidence: []checks.Evidence{said, from}}
	if version < 246 {
		return s, fmt.Errorf("systemd %d has no ManageForeignRoutes: could not determine which routes networkd removes", version)
	}
	entries, err := networkdConfig(h)
	if err != nil {
		return s, err
	}
	var want, got []string
	for _, setting := range []struct {
		name  string
		since int // the first version that removes such objects
	}{{"ManageForeignRoutes", 246}, {"ManageForeignRoutingPolicyRules", 247}, {"ManageForeignNextHops", 256}} {
		if version < setting.since {
			continue
		}
		want = append(want, setting.name+"=no")
		e, set := config.Last(entries, "Network", setting.name)
		manages, valid := config.ParseBool(e.Value)
		if !set || !valid {
			manages = true
		}
		if set {
			s.Evidence = append(s.Evidence, checks.Seen(e.At(), e.Key+"="+e.Value))
		}
		if manages {
			s.Pass = false
			got = append(got, setting.name+"=yes")
		}
	}
	s.Want, s.Got = strings.Join(want, " "), strings.Join(want, " ")
	if !s.Pass {
		s.Got = strings.Join(got, " ")
		s.Remedy = "create /etc/systemd/networkd.conf.d/99-cni.conf with section [Network] and " +
			strings.ReplaceAll(s.Got, "=yes", "=no") + ", then run `systemctl restart systemd-networkd`"
		if version < 249 && strings.Contains(s.Got, "Rules") {
			s.Remedy += fmt.Sprintf("; systemd %d supports ManageForeignRoutingPolicyRules only if the distribution backported it from 249",
				version)
		}
	}
	return s, nil
}

// networkdConfig returns the entries of networkd.conf and its drop-ins.
func networkdConfig(h *host.Host) ([]config.Entry, error) {
	files, err := config.WithDropIns(h.Files, config.Dirs("systemd"), "networkd.conf")
	if err != nil {
		return nil, err
	}
	// systemd only warns about a line that it cannot parse.
	entries, _ := config.ParseFiles(files)
	return entries, nil
}
