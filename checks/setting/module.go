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
	if m.Absent && err == nil {
		return inspectAbsent(h, m.Module, state)
	}
	s := checks.State{Want: host.ModuleLoaded.String(), Got: state.String(), Pass: state.Present()}
	if state == host.ModuleBuiltIn {
		s.Want = s.Got
	}
	switch {
	case err != nil:
	case m.Options != nil && state.Present():
		return inspectOptions(h, m.Module, state)
	case m.Options != nil:
		s.Want = m.Want()
	}
	switch state {
	case host.ModuleLoadable:
		if h.ModulesDisabled() {
			s.Remedy = host.ModulesDisabledRemedy
			break
		}
		s.Remedy = h.LoadRemedy("run `modprobe "+m.Module.Name+"`", m.Module.Name)
		release, _ := h.Kernel.Release() // without it, or modprobe.d, modprobe itself reports the reason
		if l, is, _ := h.Forbidden(release, m.Module.Name); is {
			s.Got, s.Evidence = "disabled in "+l.At(), []checks.Evidence{checks.Seen(l.At(), l.Text())}
			break
		}
		s.Changes = []checks.Change{{
			What: m.Module.Name, From: s.Got, To: s.Want, Kind: checks.LoadModule, Target: m.Module.Name,
			Make: func(ctx context.Context, h *host.Host) error {
				return h.LoadModule(ctx, m.Module.Name, m.Arguments()...)
			},
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
