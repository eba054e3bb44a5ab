package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// rootDir: kubelet exits where it cannot write its folder.
func rootDir() checks.Problem {
	return checks.Problem{
		Name: "kubelet.root-dir", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "kubelet's folder is on a file system that is read-only, or full before kubelet's first start.",
		Symptom: "kubelet restarts for ever: \"mkdir /var/lib/kubelet/pki: read-only file system\" or \"no space left on device\".",
		How: "The file system of --root-dir, /var/lib/kubelet by default, is mounted read-only for the first process (nodegate's own " +
			"services see all of them so), or statfs has less than 32 KiB or no inode left while kubelet's cpu_manager_state is not there. A " +
			"kubelet that has run before starts on a full disk, and evicts Pods.",
		Remedy: "see why it is read-only (dmesg: a file system with errors is mounted so), or make space: crictl rmi " +
			"--prune, journalctl --vacuum-size=100M",
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/reference/node/kubelet-files/",
		Inspect:  inspectRootDir,
	}
}

func inspectRootDir(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("a file system to write to")
	k, found, err := read(h, &s)
	if !found {
		return s, err
	}
	dir := cmp.Or(k.Flags["root-dir"].Value, "/var/lib/kubelet")
	at := dir
	space, err := h.Files.Space(at)
	for ; errors.Is(err, fs.ErrNotExist) && at != "/"; space, err = h.Files.Space(at) {
		at = path.Dir(at)
	}
	if err != nil {
		return s, err
	}
	target := resolved(h.Files, at)
	mounted, err := mountOf(h, "/proc/1/mounts", target)
	if err != nil {
		return s, err
	}
	const little = 32 << 10 // certificate, key and state of a first start
	full := ""
	switch {
	case len(mounted) > 3 && slices.Contains(strings.Split(mounted[3], ","), "ro"):
		if target != path.Clean(at) {
			s.Evidence = append(s.Evidence, checks.Seen(at, "-> "+target))
		}
		s.Evidence = append(s.Evidence, checks.Seen("/proc/1/mounts", strings.Join(mounted[:4], " ")))
		s.Differs("read-only", "")
		return s, nil
	case space.Free < little:
		full = fmt.Sprintf("%d bytes left", space.Free)
	case space.Inodes > 0 && space.FreeInodes == 0:
		full = "no inode left"
	default:
		return s, nil
	}
	s.Evidence = []checks.Evidence{checks.Seen(at, full)}
	if before, err := h.Files.Exists(dir + "/cpu_manager_state"); err != nil || before {
		return s, err
	}
	s.Differs(full, "")
	return s, nil
}

// resolved returns a path without the symbolic links in it, as statfs(2) follows them: a table of mounts has no others. What is no link,
// or was not asked of an older recording, stays as it is.
func resolved(files host.Files, name string) string {
	const most = 40 // as the kernel follows (MAXSYMLINKS in include/linux/namei.h): of more, statfs(2) has said ELOOP
	at, followed := "/", 0
	rest := strings.Split(name, "/")
	for len(rest) > 0 {
		next := path.Join(at, rest[0]) // "..", too: what is before it has no link left
		rest = rest[1:]
		to := ""
		if next != at && followed < most {
			to, _ = files.ReadLink(next)
		}
		if to == "" {
			at = next
			continue
		}
		followed++
		if path.IsAbs(to) {
			at = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return at
}

// mountOf returns the line of a table of mounts that a path is on, nil where there is none: the last of those with the
// longest mount point.
func mountOf(h *host.Host, table, path string) (mounted []string, err error) {
	text, err := h.Text(table)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 || mounted != nil && len(f[1]) < len(mounted[1]) {
			continue
		}
		if strings.HasPrefix(path+"/", strings.TrimRight(f[1], "/")+"/") {
			mounted = f
		}
	}
	return mounted, nil
}
