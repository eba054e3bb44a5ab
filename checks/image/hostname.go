package image

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"nodegate/internal/host/config"
)

// judgeHostname finds the name of the machine on which the image was made. kubelet registers its node under the hostname, so that all
// machines of the image would be one node. A name that only states what the image is, as cloud images have, is fine: it is a default
// that the operator replaces.
func judgeHostname(ctx context.Context, h finder, r *report) error {
	const file = "/etc/hostname"
	text, _, err := h.ReadIfAny(file)
	name := strings.TrimSpace(string(text))
	if err != nil || name == "" || strings.HasPrefix(name, "#") {
		return err
	}
	generic, err := isGeneric(h, name)
	if err != nil || generic {
		return err
	}
	by, err := setsHostname(ctx, h)
	if err != nil {
		return err
	}
	seen := "the hostname " + name
	if by != "" {
		seen += "; " + by + " replaces it at boot"
	}
	r.add(h, leftover{kind: "hostname", remedy: empty, minor: by != ""}, []found{{file, seen}})
	return nil
}

// isGeneric reports whether a hostname is no machine's own: localhost, the distribution's ID, or a word for any machine. A question mark
// stands for a part that systemd makes from the machine-id (hostname(5)).
func isGeneric(h finder, name string) (bool, error) {
	first, _, _ := strings.Cut(strings.ToLower(name), ".")
	words := []string{
		"localhost", "localhost4", "localhost6", "(none)", "none", "linux", "vm", "host", "node", "server", "image", "template", "cloudimg",
		"debian", "ubuntu", "fedora", "centos", "rocky", "almalinux", "rhel", "amazonlinux", "amazon", "flatcar", "coreos", "cos", "suse",
		"opensuse", "sles", "arch", "archlinux", "archiso", "alpine", "nixos", "bottlerocket", "photon", "mariner", "azurelinux", "oracle",
	}
	if slices.Contains(words, first) || strings.Contains(name, "?") {
		return true, nil
	}
	release, err := h.OSRelease()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return first == release["ID"], err
}

// setsHostname returns the program that sets the hostname of each machine at its first boot, or "".
func setsHostname(ctx context.Context, h finder) (string, error) {
	runs, err := cloudInitRuns(h)
	if err != nil {
		return "", err
	}
	if runs {
		keeps, err := anyHas(h, config.KeepsHostname, "/etc/cloud/cloud.cfg", "/etc/cloud/cloud.cfg.d/*.cfg")
		if err != nil || !keeps {
			return "cloud-init", err
		}
	}
	for _, unit := range []string{
		"google-guest-agent.service", "google-guest-agent-manager.service", "walinuxagent.service", "waagent.service",
		"afterburn-hostname.service",
		"coreos-metadata.service", "coreos-metadata-sshkeys@core.service", "vmtoolsd.service", "open-vm-tools.service", "nodeadm-config.service",
	} {
		on, _, err := h.UnitOn(ctx, unit)
		if err != nil || on {
			return unit, err
		}
	}
	return "", nil
}

// cloudInitRuns reports whether cloud-init is installed, and neither disabled nor masked.
func cloudInitRuns(h finder) (bool, error) {
	installed := false
	for _, name := range []string{"/usr/bin/cloud-init", "/usr/local/bin/cloud-init", "/bin/cloud-init"} {
		is, err := h.Files.Exists(name)
		if err != nil {
			return false, err
		}
		installed = installed || is
	}
	if !installed {
		return false, nil
	}
	for _, unit := range []string{"cloud-init.target", "cloud-init.service", "cloud-init-main.service", "cloud-config.service"} {
		if to, err := h.Files.ReadLink("/etc/systemd/system/" + unit); err == nil && to == "/dev/null" {
			return false, nil
		}
	}
	off, err := h.Files.Exists("/etc/cloud/cloud-init.disabled")
	return !off, err
}

// anyHas reports whether a file that matches a pattern has a trait.
func anyHas(h finder, trait config.Trait, patterns ...string) (bool, error) {
	for _, pattern := range patterns {
		names, err := h.glob(pattern)
		if err != nil {
			return false, err
		}
		for _, name := range names {
			traits, err := h.traits(name)
			if err != nil || slices.Contains(traits, trait) {
				return err == nil, err
			}
		}
	}
	return false, nil
}

// judgeInitiator finds the iSCSI name of the machine on which the image was made. Two initiators of one name write to the same volume.
func judgeInitiator(_ context.Context, h finder, r *report) error {
	// Debian's startup-checks.sh makes a name if the file asks for it, and fails without the file. RHEL's iscsi-init.service makes one if
	// the file is missing.
	remedy := func(files ...string) string { return "printf 'GenerateName=yes\\n' >" + files[0] }
	for _, dir := range []string{"/usr/lib/systemd/system", "/lib/systemd/system"} {
		if makes, err := h.Files.Exists(dir + "/iscsi-init.service"); err != nil {
			return err
		} else if makes {
			remedy = nil
		}
	}
	l := leftover{
		kind: "iSCSI initiator name", patterns: []string{"/etc/iscsi/initiatorname.iscsi"}, holds: []config.Trait{config.InitiatorName},
		remedy: remedy,
	}
	files, err := l.find(h)
	r.add(h, l, files)
	return err
}
