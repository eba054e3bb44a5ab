package setting

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"nodegate/checks"
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

func (m installedModule) Inspect(_ context.Context, h *host.Host) (checks.State, error) {
	releases, err := h.Releases()
	if err != nil {
		return checks.State{}, err
	}
	modprobe, err := config.ModprobeConfig(h.Files)
	if err != nil {
		return checks.State{}, err
	}
	s := checks.Passing("in every kernel")
	var wrong, remedies []string
	for _, release := range releases {
		got, remedy, seen, err := m.inspectKernel(h, release, modprobe)
		if err != nil {
			return checks.State{}, err
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
		s.Differs("no kernel in the image", "install a kernel with its modules below /lib/modules")
	case wrong != nil:
		s.Differs(strings.Join(wrong, ", "), strings.Join(remedies, "; "))
	}
	return s, nil
}

// inspectKernel says what is wrong with the module in one kernel, "" for nothing.
func (m installedModule) inspectKernel(h *host.Host, release string, modprobe []config.Modprobe) (got, remedy string, seen []checks.Evidence, err error) {
	dir := "/lib/modules/" + release
	state, err := h.InstalledModule(release, m.Module.Name)
	if err != nil {
		return "", "", nil, err
	}
	if state != host.ModuleLoadable {
		seen = []checks.Evidence{checks.Seen(dir, state.String())}
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
		names, err := h.ReadDirIfAny(path.Dir(file))
		if err != nil {
			return "", "", nil, err
		}
		if !slices.Contains(names, path.Base(file)) {
			seen = append(seen, checks.Seen(file, "in modules.dep, and not there"))
			return "file missing in " + release, "install " + modulePackage(h, release) + " again, or run: depmod " + release, seen, nil
		}
		// A module that it needs is loaded the same way, and fails the same way.
		if l, found := config.Install(modprobe, host.ModuleName(file)); found && l.Disables() {
			said := "install " + l.Module + " " + l.Rest
			return "disabled in " + l.At(), "take \"" + said + "\" out of " + l.At(), []checks.Evidence{checks.Seen(l.At(), said)}, nil
		}
	}
	seen = []checks.Evidence{checks.Seen(dir, "loadable")}
	if l, found := config.Blacklisted(modprobe, m.Module.Name); found {
		seen = append(seen, checks.Seen(l.At(), "blacklisted: systemd-modules-load leaves it out, nodegate-apply still loads it by name"))
	}
	return "", "", seen, nil
}

// modulePackage names what brings a kernel's modules on this distribution.
func modulePackage(h *host.Host, release string) string {
	distribution, _ := h.OSRelease() // without one, the remedy names no package
	switch {
	case distribution.Like("rhel", "fedora", "centos"):
		return "kernel-modules-extra-" + release
	case distribution.Like("ubuntu"):
		return fmt.Sprintf("linux-modules-%[1]s and linux-modules-extra-%[1]s", release)
	case distribution.Like("debian"):
		return "linux-image-" + release
	}
	return "the package for kernel " + release
}
