package kubeproxy

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// ipvsSettings detects parameters that kube-proxy's IPVS mode relies on and that another program changed.
func ipvsSettings() checks.Problem {
	return checks.Problem{
		Name: "ipvs.settings", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "A parameter that kube-proxy's IPVS mode relies on does not have the required value.",
		Symptom: "Connections to Services time out after an endpoint was removed, or replies come from the " +
			"wrong source address; with a layer 2 load balancer, two nodes answer ARP for the same address.",
		How: "If ip_vs is in the kernel, these values are required: net.ipv4.vs.{conntrack,expire_nodest_conn,expire_quiescent_template}=1, " +
			"conn_reuse_mode=0 on kernels 4.1 to 5.8, net.ipv4.conf.all.arp_ignore=1 and arp_announce=2 (strictARP).",
		Remedy: "set the parameters in the policy, and ipvs.strictARP: true in kube-proxy's configuration",
		TradeOff: "conn_reuse_mode=0 sends some connections of busy clients to an endpoint that was removed; " +
			"kernels 5.9 and later do not need it.",
		Ref:     "https://github.com/kubernetes/kubernetes/blob/master/pkg/proxy/ipvs/proxier.go",
		Inspect: inspectIPVS,
	}
}

func inspectIPVS(_ context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	if _, err := h.ReadSysctl("net/ipv4/vs/conntrack"); errors.Is(err, fs.ErrNotExist) {
		return checks.State{Skip: "ip_vs is not in the kernel"}, nil
	} else if err != nil {
		return checks.State{}, err
	}
	wanted := [][2]string{
		{"net/ipv4/vs/conntrack", "1"}, {"net/ipv4/vs/expire_nodest_conn", "1"}, {"net/ipv4/vs/expire_quiescent_template", "1"},
	}
	release, err := h.KernelRelease()
	if err != nil {
		return checks.State{}, err
	}
	if release.AtLeast(4, 1) && !release.AtLeast(5, 9) {
		wanted = append(wanted, [2]string{"net/ipv4/vs/conn_reuse_mode", "0"})
	}
	wanted = append(wanted, [2]string{"net/ipv4/conf/all/arp_ignore", "1"}, [2]string{"net/ipv4/conf/all/arp_announce", "2"})

	s := checks.State{Pass: true, Evidence: []checks.Evidence{checks.Seen("uname -r", release.Text)}}
	var want, got, commands []string
	var causes checks.Causes
	for _, w := range wanted {
		key := policy.Key(w[0])
		value, err := h.ReadSysctl(w[0])
		if err != nil {
			return s, err
		}
		want = append(want, key.String()+"="+w[1])
		if value != w[1] {
			s.Pass = false
			s.Evidence = append(s.Evidence, checks.Seen("/proc/sys/"+w[0], value))
			got, commands = append(got, key.String()+"="+value), append(commands, key.String()+"="+w[1])
			causes.Add(checks.SysctlCause(p, w[0]))
		}
	}
	s.Want, s.Got, s.Cause = strings.Join(want, " "), strings.Join(want, " "), causes.One()
	if !s.Pass {
		s.Got = strings.Join(got, " ")
		s.Remedy = "run `sysctl -w " + strings.Join(commands, " ") + "` and add the sysctls to the policy"
	}
	return s, nil
}
