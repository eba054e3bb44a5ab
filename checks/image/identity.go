package image

import (
	"context"
	"errors"
	"path"
	"strings"
	"syscall"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/plain"
	"nodegate/policy"
)

// identity: machines made from one image must have different identities.
func identity() checks.Problem {
	return checks.Problem{
		Name: "image.identity", Stages: []checks.Stage{checks.Image}, NotAll: true, Severity: policy.Block,
		Detects: "The image contains data that must be unique to each machine: a machine-id, SSH host keys, DHCP " +
			"leases, state or credentials.",
		Symptom: "Nodes compete for one address, because networkd derives its DHCP identity from the machine-id. Their " +
			"journals and Nodes are confused with each other. Anyone who has the image has the SSH host keys of every node.",
		How: "/etc/machine-id is neither empty nor \"uninitialized\"; or the image has SSH host keys, DHCP leases, " +
			"cloud-init state, random seeds, journals, shell histories, or credentials of kubelet or a user.",
		Remedy: "remove them in the last step that writes to the image, as packer.pkr.hcl does",
		TradeOff: "SSH host keys must be generated at boot: by cloud-init, RHEL's sshd-keygen, or a drop-in for " +
			"ssh.service with ExecStartPre=/usr/bin/ssh-keygen -A.",
		Ref:     "https://systemd.io/BUILDING_IMAGES/",
		Inspect: inspectIdentity,
	}
}

// leftover is a kind of file with patterns for its paths; * matches within the last element only.
type leftover struct {
	kind     string
	patterns []string
}

func leftovers(homes []string) []leftover {
	return []leftover{
		{"machine-id", []string{"/etc/machine-id", "/var/lib/dbus/machine-id"}},
		{"SSH host keys", []string{"/etc/ssh/ssh_host_*_key"}},
		{"DHCP leases", []string{"/var/lib/dhcp/*.lease*", "/var/lib/dhclient/*.lease*", "/var/lib/dhcpcd/*", "/var/lib/NetworkManager/*.lease",
			"/var/lib/NetworkManager/secret_key"}},
		{"cloud-init's state", []string{"/var/lib/cloud/instances/*"}},
		{"random seed", []string{
			"/var/lib/systemd/random-seed", "/boot/loader/random-seed", "/boot/efi/loader/random-seed", "/efi/loader/random-seed",
		}},
		{"systemd's credential secret", []string{"/var/lib/systemd/credential.secret"}},
		{"journal", []string{"/var/log/journal/*"}},
		{"shell history", joinPaths(homes, ".*_history")},
		{"credentials", joinPaths(homes, ".netrc", ".aws/credentials", ".docker/config.json", ".kube/config", ".ssh/id_*")},
		{"kubelet's certificate", []string{"/var/lib/kubelet/pki/*"}},
	}
}

func joinPaths(dirs []string, names ...string) []string {
	var all []string
	for _, dir := range dirs {
		for _, name := range names {
			all = append(all, dir+"/"+name)
		}
	}
	return all
}

func inspectIdentity(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("no data that must be unique to a machine")
	users, err := h.ReadDirIfAny("/home")
	if err != nil {
		return s, err
	}
	var found, remove, remedies []string
	for _, l := range leftovers(append([]string{"/root"}, joinPaths([]string{"/home"}, users...)...)) {
		files, err := l.findFiles(h)
		if err != nil {
			return s, err
		}
		if len(files) > 0 {
			found = append(found, l.kind)
		}
		for _, name := range files {
			s.Evidence = append(s.Evidence, checks.Seen(name, l.kind))
			at := plain.Quote(path.Join(h.Root, name))
			if name == "/etc/machine-id" { // without the file, systemd treats the boot as the first one and resets the enabled units
				remedies = append(remedies, "truncate -s 0 "+at)
			} else {
				remove = append(remove, at)
			}
		}
	}
	if remove != nil {
		remedies = append(remedies, "rm -rf "+strings.Join(remove, " "))
	}
	if found != nil {
		s.Differs(strings.Join(found, ", "), "run `"+strings.Join(remedies, "; ")+"`")
	}
	return s, nil
}

// findFiles returns the files of this kind that have content; a directory with files counts.
func (l leftover) findFiles(h *host.Host) ([]string, error) {
	var files []string
	for _, pattern := range l.patterns {
		dir := path.Dir(pattern)
		names, err := h.ReadDirIfAny(dir)
		if err != nil && !errors.Is(err, syscall.ENOTDIR) { // for example /home/aquota.user
			return nil, err
		}
		for _, name := range names {
			at := dir + "/" + name
			if matches, err := path.Match(pattern, at); err != nil {
				return nil, err
			} else if !matches {
				continue
			}
			if filled, err := h.Files.Filled(at); err != nil {
				return nil, err
			} else if filled {
				files = append(files, at)
			}
		}
	}
	return files, nil
}
