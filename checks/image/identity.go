package image

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"
	"syscall"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/plain"
	"nodegate/policy"
)

// identity: machines made from one image must not be the same machine.
func identity() checks.Problem {
	return checks.Problem{
		Name: "image.identity", Stages: []checks.Stage{checks.Image}, NotAll: true, Severity: policy.Block,
		Detects: "The image carries what each machine must have of its own: a machine-id, SSH host keys, DHCP leases, state, credentials.",
		Symptom: "Nodes fight for one address, because networkd derives its DHCP identity from the machine-id; journals and Nodes are taken " +
			"for one another; whoever has the image has every node's SSH host keys.",
		How: "machine-id is neither empty nor \"uninitialized\"; or there are files of SSH host keys, leases, cloud-init's state, " +
			"random seeds, journals, shell histories, kubelet's or a user's credentials.",
		Remedy: "remove them as the last step that writes to the image, as packer.pkr.hcl does",
		TradeOff: "Something must make SSH host keys anew at boot: cloud-init, RHEL's sshd-keygen, or a drop-in of ssh.service with " +
			"ExecStartPre=/usr/bin/ssh-keygen -A.",
		Ref:     "https://systemd.io/BUILDING_IMAGES/",
		Inspect: inspectIdentity,
	}
}

// leftover is files of one kind, by patterns of their names; * matches within the last element.
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
	s := checks.Passing("nothing that must be each machine's own")
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
			if name == "/etc/machine-id" { // without the file, systemd's first boot would undo what was enabled and disabled
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
		s.Differs(strings.Join(found, ", "), "run: "+strings.Join(remedies, "; "))
	}
	return s, nil
}

// findFiles returns the files of the kind that have content; a directory that has files counts.
func (l leftover) findFiles(h *host.Host) ([]string, error) {
	var files []string
	for _, pattern := range l.patterns {
		dir := path.Dir(pattern)
		names, err := h.ReadDirIfAny(dir)
		if err != nil && !errors.Is(err, syscall.ENOTDIR) { // /home/aquota.user
			return nil, err
		}
		for _, name := range names {
			at := dir + "/" + name
			if matches, err := path.Match(pattern, at); err != nil {
				return nil, err
			} else if !matches {
				continue
			}
			if filled, err := hasContent(h, at); err != nil {
				return nil, err
			} else if filled {
				files = append(files, at)
			}
		}
	}
	return files, nil
}

func hasContent(h *host.Host, name string) (bool, error) {
	if to, err := h.Files.ReadLink(name); err == nil && to == os.DevNull {
		return false, nil
	}
	if names, err := h.Files.ReadDir(name); err == nil { // empty: of a package, such as the journal's remote
		return len(names) > 0, nil
	}
	text, _, err := h.ReadIfAny(name)
	said := strings.TrimSpace(string(text))
	return said != "" && said != "uninitialized", err
}
