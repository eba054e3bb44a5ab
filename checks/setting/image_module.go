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

// installedModule requires a module in every kernel of a file tree, because the image does not
// define which kernel will boot. It decides from the existing files and modprobe.d whether the
// module can be loaded, not from modules.dep alone.
type installedModule struct{ policy.Module }

func (m installedModule) Name() string              { return "image.module." + m.Module.Name }
func (m installedModule) Metadata() policy.Metadata { return m.Module.Metadata }

func (m installedModule) Inspect(_ context.Context, h *host.Host) (checks.State, error) {
	releases, err := h.Releases()
	if err != nil {
		return checks.State{}, err
	}
	modprobe, err := h.Modprobe()
	if err != nil {
		return checks.State{}, err
	}
	s := checks.Passing("in every kernel")
	if m.Absent {
		s = checks.Passing("not loadable in any kernel")
	}
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
	case len(releases) == 0 && m.Absent:
	case len(releases) == 0:
		if boots, err := h.Files.Filled("/boot"); err != nil || !boots {
			s.Skip = "no kernel and no boot loader here: a container or WSL2, which use the kernel of their host"
			return s, err
		}
		s.Differs("no kernel in the image", "install a kernel with its modules below /lib/modules")
	case wrong != nil:
		s.Differs(strings.Join(wrong, ", "), strings.Join(remedies, "; "))
	}
	return s, nil
}

// depmodCommand returns the command that rebuilds a kernel's module list.
func depmodCommand(h *host.Host, release string) string {
	if h.Root == "/" {
		return "depmod " + release
	}
	return "depmod --basedir " + plain.Quote(h.Root) + " " + release
}

// kernelFinding is the result for a module in one installed kernel.
type kernelFinding struct {
	wrong, remedy string // "" if the module can be loaded
	seen          []checks.Evidence
}

func (m installedModule) inspectKernel(h *host.Host, release string, modprobe []config.Modprobe) (kernelFinding, error) {
	dir := "/lib/modules/" + release
	state, err := h.InstalledModule(release, m.Module.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return kernelFinding{
			wrong:  "no modules.dep in " + release,
			remedy: "run `" + depmodCommand(h, release) + "`, or remove " + strings.TrimSuffix(h.Root, "/") + dir + " if that kernel is gone",
			seen:   []checks.Evidence{checks.Seen(dir+"/modules.dep", "missing")},
		}, nil
	}
	if err != nil {
		return kernelFinding{}, err
	}
	if m.Absent {
		return absentIn(h, m.Module, release, state, modprobe), nil
	}
	if state != host.ModuleLoadable {
		found := kernelFinding{seen: []checks.Evidence{checks.Seen(dir, state.String())}}
		if state == host.ModuleMissing {
			found.wrong = "not in " + release
			found.remedy = "install " + h.ModulePackage(release) + ", which contains " + m.Module.Name + ", or remove the kernel"
		}
		return found, nil
	}
	files, err := h.ModuleFiles(release, m.Module.Name)
	if err != nil {
		return kernelFinding{}, err
	}
	for _, file := range files {
		names, err := h.ReadDirIfAny(path.Dir(file))
		if err != nil {
			return kernelFinding{}, err
		}
		if !slices.Contains(names, path.Base(file)) {
			return kernelFinding{
				wrong:  "file missing in " + release,
				remedy: "install " + h.ModulePackage(release) + " again, or run `" + depmodCommand(h, release) + "`",
				seen:   []checks.Evidence{checks.Seen(file, "in modules.dep, but the file does not exist")},
			}, nil
		}
	}
	if l, is, err := h.Forbidden(release, m.Module.Name); is || err != nil {
		return kernelFinding{"disabled in " + l.At(), l.Removal(), []checks.Evidence{checks.Seen(l.At(), l.Text())}}, err
	}
	found := kernelFinding{seen: []checks.Evidence{checks.Seen(dir, "loadable")}}
	if wrong := lackingOptions(m.Module, modprobe); wrong != "" {
		found.wrong, found.remedy = wrong, "run `nodegate install --root "+plain.Quote(h.Root)+"`, which writes modprobe.d"
	}
	if l, is := config.Blacklisted(modprobe, m.Module.Name); is {
		found.seen = append(found.seen, checks.Seen(l.At(), "blacklisted: systemd-modules-load skips it, nodegate-apply still loads it by name"))
	}
	return found, nil
}
