package checks

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// installedModule requires a module in every kernel that a file tree has: the
// image does not say which of them will boot. Whether it can be loaded is
// believed of files that are there and of modprobe.d, not of modules.dep alone.
type installedModule struct{ policy.Module }

func (m installedModule) Name() string              { return "image.module." + m.Module.Name }
func (m installedModule) Metadata() policy.Metadata { return m.Module.Metadata }

func (m installedModule) Inspect(_ context.Context, h *host.Host) (State, error) {
	releases, err := h.Releases()
	if err != nil {
		return State{}, err
	}
	modprobe, err := config.ModprobeConfig(h.Files)
	if err != nil {
		return State{}, err
	}
	s := State{Want: "in every kernel", Got: "in every kernel", Pass: true}
	var wrong, remedies []string
	for _, release := range releases {
		got, remedy, seen, err := m.inspectKernel(h, release, modprobe)
		if err != nil {
			return State{}, err
		}
		s.Evidence = append(s.Evidence, seen...)
		if got != "" {
			wrong = append(wrong, got)
		}
		if got != "" && !slices.Contains(remedies, remedy) {
			remedies = append(remedies, remedy)
		}
	}
	switch {
	case len(releases) == 0:
		s.Pass, s.Got = false, "no kernel in the image"
		s.Remedy = "install a kernel with its modules below /lib/modules"
	case wrong != nil:
		s.Pass, s.Got, s.Remedy = false, strings.Join(wrong, ", "), strings.Join(remedies, "; ")
	}
	return s, nil
}

// inspectKernel says what is wrong with the module in one kernel, "" for nothing.
func (m installedModule) inspectKernel(h *host.Host, release string, modprobe []config.Modprobe) (got, remedy string, seen []Evidence, err error) {
	dir := "/lib/modules/" + release
	state, err := h.InstalledModule(release, m.Module.Name)
	if err != nil {
		return "", "", nil, err
	}
	if state != host.ModuleLoadable {
		seen = []Evidence{{dir, state.String()}}
		if state == host.ModuleMissing {
			got, remedy = "not in "+release, "install "+modulePackage(h, release)+", which has "+m.Module.Name+", or remove the kernel"
		}
		return got, remedy, seen, nil
	}
	files, err := h.ModuleFiles(release, m.Module.Name)
	if err != nil {
		return "", "", nil, err
	}
	for _, file := range files {
		names, err := readDirIfAny(h, path.Dir(file))
		if err != nil {
			return "", "", nil, err
		}
		if !slices.Contains(names, path.Base(file)) {
			seen = append(seen, Evidence{file, "in modules.dep, and not there"})
			return "file missing in " + release, "install " + modulePackage(h, release) + " again, or run: depmod " + release, seen, nil
		}
		// A module that it needs is loaded the same way, and fails the same way.
		if l, found := config.Install(modprobe, host.ModuleName(file)); found && l.Disables() {
			said := "install " + l.Module + " " + l.Rest
			return "disabled in " + l.At(), "take \"" + said + "\" out of " + l.At(), []Evidence{{l.At(), said}}, nil
		}
	}
	seen = []Evidence{{dir, "loadable"}}
	if l, found := config.Blacklisted(modprobe, m.Module.Name); found {
		seen = append(seen, Evidence{l.At(), "blacklisted: systemd-modules-load leaves it out, nodegate-apply still loads it by name"})
	}
	return "", "", seen, nil
}

// modulePackage names what brings a kernel's modules on this distribution.
func modulePackage(h *host.Host, release string) string {
	for _, name := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		text, err := h.Files.ReadFile(name)
		if err != nil {
			continue // then the remedy names no package
		}
		distribution, _ := config.ParseOSRelease(name, text)
		switch {
		case distribution.Like("rhel", "fedora", "centos"):
			return "kernel-modules-extra-" + release
		case distribution.Like("ubuntu"):
			return fmt.Sprintf("linux-modules-%[1]s and linux-modules-extra-%[1]s", release)
		case distribution.Like("debian"):
			return "linux-image-" + release
		}
	}
	return "the package for kernel " + release
}
