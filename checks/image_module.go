package checks

import (
	"context"
	"strings"

	"nodegate/host"
	"nodegate/policy"
)

// installedModule requires a module in every kernel that a file tree has: the
// image does not say which of them will boot.
type installedModule struct{ policy.Module }

func (m installedModule) Name() string        { return "image.module." + m.Module.Name }
func (m installedModule) About() policy.About { return m.Module.About }

func (m installedModule) Inspect(_ context.Context, h *host.Host) (State, error) {
	releases, err := h.Releases()
	if err != nil {
		return State{}, err
	}
	s := State{Want: "in every kernel", Got: "in every kernel", Holds: true}
	var without []string
	for _, release := range releases {
		state, err := h.InstalledModule(release, m.Module.Name)
		if err != nil {
			return State{}, err
		}
		s.Evidence = append(s.Evidence, Evidence{"/lib/modules/" + release, installed(state)})
		if state == host.ModuleMissing {
			without = append(without, release)
		}
	}
	switch {
	case len(releases) == 0:
		s.Holds, s.Got = false, "no kernel in the image"
		s.Remedy = "install a kernel with its modules below /lib/modules"
	case len(without) > 0:
		s.Holds, s.Got = false, "not in "+strings.Join(without, ", ")
		s.Remedy = "install the package that has " + m.Module.Name + " for these kernels, or remove the kernels"
	}
	return s, nil
}

func installed(s host.ModuleState) string {
	if s == host.ModuleLoadable {
		return "loadable"
	}
	return s.String()
}
