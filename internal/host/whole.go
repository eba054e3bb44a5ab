package host

import (
	"context"
	"path"
	"strings"

	"nodegate/internal/ethtool"
)

// RecordWhole makes a recording host read every parameter, the attributes below /sys that match the patterns, all links with their
// settings, the modules and their configuration, and the facts. The recording then answers requirements that the machine's policy does
// not have.
func (h *Host) RecordWhole(ctx context.Context, attributes, facts []string) {
	for _, name := range facts {
		h.Fact(ctx, name)
	}
	files, is := h.Files.(askedFiles)
	if !is || !h.memo.keeps || !h.Live() {
		return
	}
	files.recordTree("/proc/sys", []string{"**"})
	for _, pattern := range append(attributes, "module/*/initstate") {
		files.recordTree("/sys", strings.Split(pattern, "/"))
	}
	_, _ = h.Modprobe()
	_, _ = h.Files.ReadFile("/proc/filesystems")
	if release, err := h.Kernel.Release(); err == nil {
		_, _ = h.Files.ReadDir("/lib/modules/" + release)
		_, _ = h.InstalledModule(release, "") // reads the lists of modules
	}
	links, _ := h.Links.List(ctx)
	_, _ = h.Links.DefaultRoutes(ctx)
	for _, l := range links {
		_, _ = h.Links.Driver(ctx, l.Name)
		for _, kind := range ethtool.Kinds() {
			if !kind.IsScalar() { // the list of links has it
				_, _ = h.LinkValues(ctx, l.Name, kind.Name)
			}
		}
	}
}

// recordTree records the directories on the way to the files that match a pattern, and these files. "**" matches any path. A link to
// another directory is recorded as such, since no attribute is read through it; registrations of binfmt_misc are not parameters.
func (a askedFiles) recordTree(at string, pattern []string) {
	if _, err := a.Files.ReadLink(at); err == nil && !isDeviceName(at) {
		_, _ = a.ReadLink(at)
		return
	}
	names, err := a.Files.ReadDir(at)
	if err != nil {
		_, _ = a.ReadFile(at)
		if head, err := a.Files.Head(at); err == nil && head.Mode&0o222 == 0 && strings.HasPrefix(at, sysfsRoot) {
			_, _ = a.Head(at)
		}
		return
	}
	if len(pattern) == 0 || at == "/proc/sys/fs/binfmt_misc" {
		return
	}
	_, _ = a.ReadDir(at)
	rest := pattern[1:]
	if pattern[0] == "**" {
		rest = pattern
	}
	for _, name := range names {
		if matches, _ := path.Match(pattern[0], name); matches {
			a.recordTree(at+"/"+name, rest)
		}
	}
}
