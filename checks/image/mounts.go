package image

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// mounts: volumes of Pods inherit the options of the file system of kubelet's directory.
func mounts() checks.Problem {
	return checks.Problem{
		Name: "image.mounts", Stages: []checks.Stage{checks.Image}, NotAll: true, Severity: policy.Block,
		Detects: "The image mounts a directory of kubelet or the container runtime so that they or Pods cannot use it: noexec, read-only, " +
			"or on a file system without what they need.",
		Symptom: "Containers fail: \"exec ...: permission denied\" for a program in an emptyDir or another volume; k3s exits: " +
			"\"FATA permission denied\"; or the runtime cannot create containers.",
		How: "Reads /etc/fstab. The nearest mount point at or above each of /var/lib/kubelet, " +
			"/var/lib/containerd, /var/lib/containers, /var/lib/docker and /var/lib/rancher, of the runtimes that the image has, must be without " +
			"noexec (which user and users imply), without ro, and not a network file system, FAT or FUSE. A runtime's directory with noexec only " +
			"warns: overlayfs does not inherit the option, but volumes that an image declares do.",
		Remedy:   "mount the directory with exec and rw, on ext4 or xfs",
		TradeOff: "Rules such as CIS demand noexec for /var/log and /tmp only; a directory with Pods' volumes needs exec.",
		Ref:      "https://github.com/kubernetes/kops/pull/10547",
		Inspect:  inspectMounts,
	}
}

// mount is a file system that is mounted at boot.
type mount struct {
	at, kind string
	options  []string
	text     string
}

const fstab = "/etc/fstab"

// readFstab returns the entries of /etc/fstab that are mounted at boot.
func readFstab(h *host.Host) (all []mount, err error) {
	text, _, err := h.ReadIfAny(fstab)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 3 || strings.HasPrefix(f[0], "#") {
			continue
		}
		options := "defaults"
		if len(f) > 3 {
			options = f[3]
		}
		m := mount{at: f[1], kind: f[2], options: strings.Split(options, ","), text: strings.Join(f, " ")}
		if !slices.Contains(m.options, "noauto") {
			all = append(all, m)
		}
	}
	return all, err
}

func inspectMounts(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("file systems that kubelet and Pods can use")
	in := newFinder(h)
	all, err := readFstab(h)
	if err != nil {
		return s, err
	}
	var faults, remedies []string
	hard := false
	for _, dir := range []struct {
		path  string
		execs bool // noexec is a fault
	}{
		{"/var/lib/kubelet", true}, {"/var/lib/rancher", true}, {"/var/lib/containerd", false}, {"/var/lib/containers", false},
		{"/var/lib/docker", false},
	} {
		m, found := nearest(all, dir.path)
		fault, remedy := "", ""
		if found && dir.path != "/var/lib/kubelet" && m.at != dir.path {
			if there, err := h.Files.Exists(dir.path); err != nil {
				return s, err
			} else if !there {
				continue // this runtime is not in the image
			}
		}
		if found {
			fault, remedy = m.judge()
		}
		if fault == "" {
			continue
		}
		hard = hard || dir.execs || fault != "noexec"
		if said := m.at + " is " + fault; !slices.Contains(faults, said) {
			faults, remedies = append(faults, said), append(remedies, remedy+" "+inRoot(in, fstab))
			s.Evidence = append(s.Evidence, checks.Seen(fstab, m.text))
		}
	}
	if faults != nil {
		remedy := "run `" + strings.Join(remedies, "; ") + "`"
		if strings.Contains(remedy, useDisk) {
			remedy = strings.Join(remedies, "; ")
		}
		s.Differs(strings.Join(faults, ", "), remedy)
		s.Minor = !hard
	}
	return s, nil
}

// nearest returns the mount that a directory is on. The root does not count: its options come from the kernel command line or the initrd.
func nearest(all []mount, dir string) (m mount, found bool) {
	for _, next := range all {
		at := strings.TrimRight(next.at, "/")
		if at != "" && strings.HasPrefix(dir+"/", at+"/") && len(at) >= len(m.at) {
			m, found = next, true
			m.at = at
		}
	}
	return m, found
}

// useDisk begins the remedy for which no command exists.
const useDisk = "mount ext4 or xfs there, in"

// judge returns the fault of a mount, and the command that corrects it, without the name of the file.
func (m mount) judge() (fault, remedy string) {
	noexec, readOnly := "", false
	for _, o := range m.options {
		switch o {
		case "noexec", "user", "users":
			noexec = o
		case "exec":
			noexec = ""
		case "ro":
			readOnly = true
		case "rw":
			readOnly = false
		}
	}
	replace := func(from, to string) string {
		return fmt.Sprintf(`sed -i -E 's#^(\S+\s+%s/?\s+\S+\s+(\S*,)?)%s(,|\s|$)#\1%s\3#'`, m.at, from, to)
	}
	base, _, _ := strings.Cut(m.kind, ".")
	switch {
	case slices.Contains([]string{
		"nfs", "nfs4", "cifs", "smb3", "vfat", "msdos", "exfat", "ntfs", "ntfs3", "fuse", "9p", "iso9660", "squashfs",
	}, base):
		return "on " + m.kind, useDisk
	case readOnly:
		return "read-only", replace("ro", "rw")
	case noexec == "noexec":
		return "noexec", replace(noexec, "exec")
	case noexec != "":
		return "noexec", replace(noexec, noexec+",exec")
	}
	return "", ""
}
