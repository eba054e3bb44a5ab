package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// rootDir: kubelet exits if it cannot write to its root directory.
func rootDir() checks.Problem {
	return checks.Problem{
		Name: "kubelet.root-dir", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "kubelet's root directory is on a read-only file system, or on one that is full before kubelet's first start or above " +
			"kubelet's eviction threshold.",
		Symptom: "kubelet restarts forever: \"mkdir /var/lib/kubelet/pki: read-only file system\" or \"no space left on device\".",
		How: "The file system of --root-dir (/var/lib/kubelet by default) is mounted read-only in the mount table of " +
			"process 1 (nodegate's own services see every file system read-only); or statfs reports less than 32 KiB or no inode left, " +
			"and kubelet's cpu_manager_state does not exist. A kubelet that has run before starts on a full disk, and evicts Pods: " +
			"less space than " +
			"evictionHard's percentage for nodefs.available (10% by default) is a warning.",
		Remedy: "find out why it is read-only (`dmesg`: the kernel remounts a file system with errors), or free space: " +
			"run `crictl rmi --prune` or `journalctl --vacuum-size=100M`",
		Ref:     "https://kubernetes.io/docs/reference/node/kubelet-files/",
		Inspect: inspectRootDir,
	}
}

func inspectRootDir(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("a writable file system with space")
	k, found, err := readConfig(h, &s)
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
	target := resolveLinks(h.Files, at)
	mounted, err := findMount(h, "/proc/1/mounts", target)
	if err != nil {
		return s, err
	}
	const little = 32 << 10 // a first start writes a certificate, a key and state
	full, remedy := "", ""
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
		remedy = "free inodes, which few large files do not: `find " + at + " -xdev -printf '%h\\n' | sort | uniq -c | sort -n | tail` names " +
			"the directories with most files"
	}
	if full != "" {
		s.Evidence = []checks.Evidence{checks.Seen(at, full)}
		if before, err := h.Files.Exists(dir + "/cpu_manager_state"); err != nil {
			return s, err
		} else if before {
			full = ""
		}
	}
	if full != "" {
		s.Differs(full, remedy)
	} else if limit := nodefsLimit(k); float64(space.Available)*100 < limit*float64(space.Size) {
		s.Differs(fmt.Sprintf("%d %% available, less than the %.4g %% at which kubelet evicts Pods", space.Available*100/space.Size, limit), "")
		s.Evidence, s.Minor = []checks.Evidence{checks.Seen(at, s.Got)}, true
	}
	return s, nil
}

// nodefsLimit returns the percentage of available space below which kubelet evicts Pods, 0 if it does not, or not by a percentage.
func nodefsLimit(k config.Kubelet) (percent float64) {
	limit := "10%" // any other threshold replaces the defaults
	for name := range k.Values {
		if strings.HasPrefix(name, "evictionHard") {
			limit = ""
		}
	}
	if flag := k.Flags["eviction-hard"].Value; flag != "" {
		_, limit, _ = strings.Cut(flag, "nodefs.available<")
		limit, _, _ = strings.Cut(limit, ",")
	} else {
		limit = cmp.Or(k.Values["evictionHard.nodefs.available"].Value, limit)
	}
	if text, is := strings.CutSuffix(limit, "%"); is {
		percent, _ = strconv.ParseFloat(text, 64) // kubelet.values asks kubelet about a wrong one
	}
	return percent
}

// resolveLinks resolves the symbolic links in a path as statfs(2) does: a mount table lists resolved paths only. It leaves elements
// unchanged that are not links, or that an older recording does not contain.
func resolveLinks(files host.Files, name string) string {
	const most = 40 // the kernel's limit (MAXSYMLINKS in include/linux/namei.h); with more, statfs(2) returned ELOOP
	at, followed := "/", 0
	rest := strings.Split(name, "/")
	for len(rest) > 0 {
		next := path.Join(at, rest[0]) // also right for "..": the path before it is free of links
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

// findMount returns the line of a mount table for the file system of a path, or nil: the last line with the longest matching mount point.
func findMount(h *host.Host, table, path string) (mounted []string, err error) {
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
