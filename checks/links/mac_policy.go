package links

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// macAddressPolicy detects that udev gives new interfaces a different MAC address than the CNI that
// creates them expects.
func macAddressPolicy() checks.Problem {
	return checks.Problem{
		Name: "link.mac-address-policy", Stages: []checks.Stage{checks.Image, checks.Boot, checks.Run}, Severity: policy.Warn, Weighs: true,
		Detects: "udev sets a persistent MAC address on the CNI's interfaces right after they appear (systemd 242 and later).",
		Symptom: "Traffic between nodes stops after flannel or the node restarts: the other nodes still have " +
			"the previous MAC address in their tables. With the Amazon VPC CNI, Pods have no network.",
		How: "The first .link file that matches flannel.1, vxlan.calico, a veth, a cali* or an eni* interface (the Amazon VPC CNI's), " +
			"including its drop-ins, has MACAddressPolicy=persistent, as systemd's 99-default.link does.",
		Remedy: "create a .link file that sorts before 99-default.link, with MACAddressPolicy=none",
		TradeOff: "The MAC address changes each time an interface is created; tunnels and veths do not rely on " +
			"it. flannel 0.15.1 and later sets the address of flannel.1 itself.",
		Ref:     "https://github.com/flannel-io/flannel/issues/1155",
		Inspect: inspectMACAddressPolicy,
	}
}

func inspectMACAddressPolicy(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.Passing("no persistent MAC address on CNI links")
	links, err := config.LinkFiles(h.Files)
	if err != nil {
		return s, err
	}
	if links == nil {
		s.Skip = "no .link files found"
		return s, nil
	}
	var persistent []string
	for _, d := range []struct {
		shown  string
		device config.Device
	}{
		{"flannel.1", config.Device{Name: "flannel.1", Kind: "vxlan"}}, {"vxlan.calico", config.Device{Name: "vxlan.calico", Kind: "vxlan"}},
		{"veth*", config.Device{Name: "veth0a1b2c3d", Kind: "veth"}}, {"cali*", config.Device{Name: "cali0a1b2c3d4e5", Kind: "veth"}},
		{"eni*", config.Device{Name: "eni0a1b2c3d4e5", Kind: "veth"}},
	} {
		entry, is, err := persistentMAC(config.LinkFor(links, d.device))
		if err != nil {
			return s, fmt.Errorf("checking MACAddressPolicy of %s: %w", d.shown, err)
		}
		if !is || d.shown == "eni*" && persistent == nil && !usesAmazonCNI(ctx, h, p) {
			continue
		}
		if persistent == nil {
			s.Evidence = append(s.Evidence, checks.Seen(entry.At(), "MACAddressPolicy=persistent"))
		}
		persistent = append(persistent, d.shown)
	}
	if persistent == nil {
		return s, nil
	}
	version, from, err := h.SystemdVersion()
	if err != nil {
		return s, err
	}
	s.Evidence = append(s.Evidence, from)
	if version < 242 {
		return s, nil // before 242 the policy affects only interfaces with an address of their own
	}
	s.Differs("persistent for "+strings.Join(persistent, " "),
		"create /etc/systemd/network/10-cni.link with [Match] OriginalName="+strings.Join(persistent, " ")+" and [Link] MACAddressPolicy=none")
	return s, nil
}

// usesAmazonCNI reports whether the node's CNI makes eni* links, or the policy is for such a node. Elsewhere a .link file need not
// name them.
func usesAmazonCNI(ctx context.Context, h *host.Host, p *policy.Policy) bool {
	if name, known := h.Fact(ctx, "cni.name"); known && name == "aws-cni" {
		return true
	}
	return slices.ContainsFunc(p.Links, func(l policy.Link) bool { return l.Match.Driver == "ena" })
}

// persistentMAC reports whether the .link file of a device makes its MAC address persistent. If the choice of the
// file depends on the machine, all candidates must agree.
func persistentMAC(candidates []config.Candidate) (entry config.Entry, is bool, err error) {
	for _, c := range slices.Backward(candidates) {
		e, set := config.Last(c.Entries, "Link", "MACAddressPolicy")
		persists := set && e.Value == "persistent"
		if len(c.If) > 0 && persists != is {
			return e, false, fmt.Errorf("%s: unknown whether %s=%s matches on the node", c.If[0].At(), c.If[0].Key, c.If[0].Value)
		}
		entry, is = e, persists
	}
	return entry, is, nil
}
