package image

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"nodegate/internal/host/config"
)

// judgeHostname finds the name of the machine on which the image was made. kubelet registers its node under the hostname, so that all
// machines of the image would be one node, unless a program such as cloud-init replaces the name at boot. A name that only states what
// the image is, as cloud images have, is fine: it is a default that the operator replaces.
func judgeHostname(h finder, r *report) error {
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
	r.add(h, leftover{kind: "hostname", remedy: empty, minor: true}, []found{{file, "the hostname " + name}})
	return nil
}

// isGeneric reports whether a hostname is no machine's own: localhost, the distribution's ID, or a word for any machine. A question mark
// stands for a part that systemd makes from the machine-id (hostname(5)).
func isGeneric(h finder, name string) (bool, error) {
	first, _, _ := strings.Cut(strings.ToLower(name), ".")
	words := []string{"localhost", "(none)", "none", "linux", "vm", "host", "node", "server", "image", "template", "cloudimg"}
	if slices.Contains(words, first) || strings.Contains(name, "?") {
		return true, nil
	}
	release, err := h.OSRelease()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return first == release["ID"], err
}

// judgeInitiator finds the iSCSI name of the machine on which the image was made. Two initiators of one name write to the same volume.
func judgeInitiator(h finder, r *report) error {
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
