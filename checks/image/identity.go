package image

import (
	"context"
	"path"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/plain"
	"nodegate/policy"
)

// identity: machines made from one image must have different identities, and the image must not give access to anything.
func identity() checks.Problem {
	return checks.Problem{
		Name: "image.identity", Stages: []checks.Stage{checks.Image}, NotAll: true, Severity: policy.Block,
		Detects: "The image contains data that must be unique to each machine or must stay secret: a machine-id, host keys, iSCSI and " +
			"NVMe names, DHCP leases, a hostname, keys, tokens, or state of kubelet or cloud-init.",
		Symptom: "Nodes compete for one address, because networkd derives its DHCP identity from the machine-id. Their journals and Nodes are " +
			"confused with each other; two iSCSI initiators of one name damage a volume. Anyone who has the image has the keys in it.",
		How: "Looks for files with content at the paths where programs keep such data, and, in directories for keys and configuration, " +
			"for files that hold a private key, a token or a password. A public key alone, an empty file, a link to /dev/null, " +
			"\"GenerateName=yes\" and a kubeconfig that names other files or a plugin are fine. Logs, authorized_keys and a hostname only warn.",
		Remedy: "remove them in the last step that writes to the image, as packer.pkr.hcl does",
		TradeOff: "SSH host keys must be generated at boot: by cloud-init, RHEL's sshd-keygen, a cloud's agent, or a drop-in for " +
			"ssh.service with ExecStartPre=/usr/bin/ssh-keygen -A.",
		Ref:     "https://systemd.io/BUILDING_IMAGES/",
		Inspect: inspectIdentity,
	}
}

func leftovers() []leftover {
	return slices.Concat(machineLeftovers(), traceLeftovers(), keyLeftovers(), clusterLeftovers())
}

// report collects what an image carries.
type report struct {
	state           checks.State
	kinds, remedies []string
	remove          []string // quoted paths
	access          []string // the same for keys that let people in
	fault           bool     // something must be removed, not only should be
}

func inspectIdentity(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	r := &report{state: checks.Passing("no data that must be unique to a machine")}
	in := newFinder(h)
	for _, l := range leftovers() {
		files, err := l.find(in)
		if err != nil {
			return r.state, err
		}
		r.add(in, l, files)
	}
	for _, inspect := range []func(finder, *report) error{judgeHostname, judgeInitiator} {
		if err := inspect(in, r); err != nil {
			return r.state, err
		}
	}
	beware := ""
	if !r.fault && r.access != nil {
		r.remove = append(r.remove, r.access...)
		beware = ", unless one of the keys in authorized_keys is your only way into the machine"
	}
	if slices.Contains(r.kinds, hostKeys) {
		beware = ", and see that cloud-init or an ExecStartPre=/usr/bin/ssh-keygen -A of sshd generates new host keys at boot"
	}
	if r.remove != nil {
		r.remedies = append(r.remedies, "rm -rf "+strings.Join(r.remove, " "))
	}
	if r.kinds != nil {
		remedy := "run `" + strings.Join(r.remedies, "; ") + "`" + beware
		if h.Live() {
			const warning = "never do this on a node; only if this machine becomes an image, "
			if active, _, err := h.Units.State(ctx, p.Gate.Unit); err == nil && active == "active" {
				remedy = p.Gate.Unit + " runs here: " + warning + "stop it and " + remedy
			} else {
				remedy = warning + remedy
			}
		}
		r.state.Differs(strings.Join(r.kinds, ", "), remedy)
		r.state.Minor = !r.fault
	}
	return r.state, nil
}

// add adds the leftovers of one kind, whose files are reported once.
func (r *report) add(h finder, l leftover, files []found) {
	var at []string
	for _, f := range files {
		source := f.name
		if slices.ContainsFunc(r.state.Evidence, func(e checks.Evidence) bool { return e.Source == source }) {
			continue
		}
		r.state.Evidence = append(r.state.Evidence, checks.Seen(f.name, f.text))
		at = append(at, inRoot(h, f.name))
	}
	if at == nil {
		return
	}
	if !slices.Contains(r.kinds, l.kind) {
		r.kinds = append(r.kinds, l.kind)
	}
	switch {
	case l.remedy != nil:
		r.remedies = append(r.remedies, l.remedy(at...))
	case l.kind == authorizedKeys: // they may be the only way in, so their removal is no part of a fault's remedy
		r.access = append(r.access, at...)
	default:
		r.remove = append(r.remove, at...)
	}
	r.fault = r.fault || !l.minor
}

// inRoot returns the path of a file of the image, for a shell outside of it.
func inRoot(h finder, name string) string { return plain.Quote(path.Join(h.Root, name)) }
