package setting

import (
	"context"
	"fmt"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// loadedModule requires a module in the running kernel: loaded, or built in.
type loadedModule struct{ policy.Module }

func (m loadedModule) Name() string              { return "module." + m.Module.Name }
func (m loadedModule) Metadata() policy.Metadata { return m.Module.Metadata }

func (m loadedModule) Inspect(_ context.Context, h *host.Host) (checks.State, error) {
	state, err := h.Module(m.Module.Name)
	s := checks.State{Want: host.ModuleLoaded.String(), Got: state.String(), Pass: state.Present()}
	switch state {
	case host.ModuleBuiltIn:
		s.Want = s.Got
	case host.ModuleLoadable:
		if h.ModulesDisabled() {
			s.Remedy = host.ModulesDisabledRemedy
			break
		}
		s.Remedy = "run `modprobe " + m.Module.Name + "`"
		s.Changes = []checks.Change{{
			What: m.Module.Name, From: s.Got, To: s.Want, Kind: checks.LoadModule, Target: m.Module.Name,
			Make: func(ctx context.Context, h *host.Host) error { return h.LoadModule(ctx, m.Module.Name) },
		}}
	case host.ModuleMissing:
		s.Remedy = missingRemedy(h, m.Module.Name)
	}
	return s, err
}

// missingRemedy distinguishes a module that is not in this kernel's packages from a kernel whose
// modules are gone, which a kernel upgrade without a reboot leaves behind.
func missingRemedy(h *host.Host, name string) string {
	release, err := h.Kernel.Release()
	if err != nil {
		return "install the package that has " + name + " for the running kernel"
	}
	if _, err := h.Files.ReadDir("/lib/modules/" + release); err != nil {
		return fmt.Sprintf("the running kernel's modules are not installed (/lib/modules/%s): reboot into the installed kernel, or install "+
			"them", release)
	}
	return fmt.Sprintf("kernel %s has no %s: install the package that contains it (Red Hat: kernel-modules-extra; "+
		"Debian, Ubuntu: linux-modules or linux-image without -unsigned or -virtual reductions)", release, name)
}
