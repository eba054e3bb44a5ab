package setting

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/internal/plain"
	"nodegate/policy"
)

// installedModule requires a module in every kernel of a file tree: the image
// does not say which of them will boot. Whether it can be loaded is judged from
// the files that exist and from modprobe.d, not from modules.dep alone.
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
		found, err := m.inspectKernel(h, release, modprobe)
		if err != nil {
			return checks.State{}, err
		}
		s.Evidence = append(s.Evidence, found.seen...)
		if found.wrong == "" {
			continue
		}
		wrong = append(wrong, found.wrong)
		if !slices.Contains(remedies, found.remedy) {
			remedies = append(remedies, found.remedy)
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

// depmod returns the command that lists a kernel's modules anew.
func depmod(h *host.Host, release string) string {
	if h.Root == "/" {
		return "depmod " + release
	}
	return "depmod --basedir " + plain.Quote(h.Root) + " " + release
}

// inKernel is what the files of one installed kernel show about a module.
type inKernel struct {
	wrong, remedy string // "" where the module can be loaded
	seen          []checks.Evidence
}

func (m installedModule) inspectKernel(h *host.Host, release string, modprobe []config.Modprobe) (inKernel, error) {
	dir := "/lib/modules/" + release
	state, err := h.InstalledModule(release, m.Module.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return inKernel{
			wrong:  "no modules.dep in " + release,
			remedy: "run: " + depmod(h, release) + "; or, if that kernel is gone, remove " + strings.TrimSuffix(h.Root, "/") + dir,
			seen:   []checks.Evidence{checks.Seen(dir+"/modules.dep", "missing")},
		}, nil
	}
	if err != nil {
		return inKernel{}, err
	}
	if state != host.ModuleLoadable {
		found := inKernel{seen: []checks.Evidence{checks.Seen(dir, state.String())}}
		if state == host.ModuleMissing {
			found.wrong = "not in " + release
			found.remedy = "install " + h.ModulePackage(release) + ", which has " + m.Module.Name + ", or remove the kernel"
		}
		return found, nil
	}
	files, err := h.ModuleFiles(release, m.Module.Name)
	if err != nil {
		return inKernel{}, err
	}
	for _, file := range files {
		names, err := h.ReadDirIfAny(path.Dir(file))
		if err != nil {
			return inKernel{}, err
		}
		if !slices.Contains(names, path.Base(file)) {
			return inKernel{
				wrong:  "file missing in " + release,
				remedy: "install " + h.ModulePackage(release) + " again, or run: " + depmod(h, release),
				seen:   []checks.Evidence{checks.Seen(file, "in modules.dep, but the file does not exist")},
			}, nil
		}
		// A module that it needs is loaded the same way, and fails the same way.
		if l, found := config.Install(modprobe, host.ModuleName(file)); found && l.Disables() {
			said := "install " + l.Module + " " + l.Rest
			return inKernel{
				wrong: "disabled in " + l.At(), remedy: "take \"" + said + "\" out of " + l.At(),
				seen: []checks.Evidence{checks.Seen(l.At(), said)},
			}, nil
		}
	}
	found := inKernel{seen: []checks.Evidence{checks.Seen(dir, "loadable")}}
	if l, is := config.Blacklisted(modprobe, m.Module.Name); is {
		found.seen = append(found.seen, checks.Seen(l.At(), "blacklisted: systemd-modules-load skips it, nodegate-apply still loads it by name"))
	}
	return found, nil
}
