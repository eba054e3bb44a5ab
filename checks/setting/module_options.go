package setting

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/internal/plain"
	"nodegate/policy"
)

// inspectOptions compares the parameters of a module whose code is running with the required options.
func inspectOptions(h *host.Host, m policy.Module, state host.ModuleState) (checks.State, error) {
	s := checks.Passing(m.Want())
	var got, stuck, remedies []string
	for _, o := range m.Options {
		required := m.Parameter(o)
		key := required.Key
		value, err := h.ReadSysctl(string(key))
		switch {
		// The only proof of a parameter that the module hides is the modprobe.d that it was loaded with.
		case errors.Is(err, fs.ErrNotExist) && m.Hides(o):
			modprobe, err := h.Modprobe()
			if err != nil {
				return s, err
			}
			alone := policy.Module{Name: m.Name, Options: []policy.ModuleOption{o}}
			if lacks := lackingOptions(alone, modprobe); lacks != "" {
				return s, fmt.Errorf("%s does not show its parameter %s below /sys, and %s: run `nodegate install`, which writes it there", m.Name,
					o.Name, lacks)
			}
			s.Evidence = append(s.Evidence, checks.Seen("modprobe.d", o.Name+"="+o.Value+" for modprobe; the loaded module does not show it"))
			continue
		case errors.Is(err, fs.ErrNotExist):
			return s, fmt.Errorf("%s does not show its parameter %s below /sys: check the spelling with `modinfo -p %s`; a parameter with mode 0 "+
				"cannot be required", m.Name, o.Name, m.Name)
		case err != nil:
			return s, err
		}
		got = append(got, o.Name+"="+value)
		switch {
		case required.Allows(value):
		case !h.ReadOnly(string(key)):
			s.Changes = append(s.Changes, writeSysctl(key, value, o.Value))
			remedies = append(remedies, applyRemedy)
		case state == host.ModuleBuiltIn:
			stuck = append(stuck, o.Name+"="+value)
			remedies = append(remedies,
				"it is built into the kernel: add "+m.Name+"."+o.Name+"="+o.Value+" to the kernel's command line, and reboot")
		default:
			stuck = append(stuck, o.Name+"="+value)
			remedies = append(remedies,
				"the module takes "+o.Name+" only when it loads: run `nodegate install`, which writes modprobe.d, and reboot")
		}
	}
	if remedies != nil {
		s.Differs("loaded with "+strings.Join(got, " "), strings.Join(slices.Compact(remedies), "; "))
		s.Stuck = strings.Join(stuck, " ")
	}
	return s, nil
}

// inspectAbsent requires that the module is not loaded, and that nothing loads it by accident.
func inspectAbsent(h *host.Host, m policy.Module, state host.ModuleState) (checks.State, error) {
	s := checks.Passing(m.Want())
	switch state {
	case host.ModuleLoaded:
		s.Differs("loaded", "run `nodegate install`, which writes modprobe.d, then `modprobe -r "+m.Name+"`; reboot if the module is in use")
	case host.ModuleBuiltIn:
		s.Differs("built in", "this kernel has the code built in: boot another kernel, or remove the block")
	case host.ModuleLoadable:
		modprobe, err := h.Modprobe()
		if err != nil {
			return s, err
		}
		line, found := config.Install(modprobe, m.Name)
		if !found || !line.Disables() {
			s.Differs("not loaded, but loadable", "run `nodegate install`, which writes modprobe.d")
			break
		}
		s.Evidence = append(s.Evidence, checks.Seen(line.At(), line.Text()))
	}
	return s, nil
}

// absentIn is inspectAbsent for one kernel of a file tree.
func absentIn(h *host.Host, m policy.Module, release string, state host.ModuleState, modprobe []config.Modprobe) kernelFinding {
	dir := "/lib/modules/" + release
	found := kernelFinding{seen: []checks.Evidence{checks.Seen(dir, state.String())}}
	switch line, disabled := config.Install(modprobe, m.Name); {
	case state == host.ModuleBuiltIn:
		found.wrong, found.remedy = "built in in "+release, "install another kernel, or remove the block"
	case state == host.ModuleLoadable && (!disabled || !line.Disables()):
		found.wrong, found.remedy = "loadable in "+release, "run `nodegate install --root "+plain.Quote(h.Root)+"`, which writes modprobe.d"
	case state == host.ModuleLoadable:
		found.seen = append(found.seen, checks.Seen(line.At(), line.Text()))
	}
	return found
}

// lackingOptions returns the options that modprobe.d does not give to the module, or "". The kernel uses the last value of a parameter.
func lackingOptions(m policy.Module, modprobe []config.Modprobe) string {
	values := map[string]string{}
	for _, l := range modprobe {
		if l.Command != "options" || l.Module != m.Name {
			continue
		}
		for word := range strings.FieldsSeq(l.Rest) {
			name, value, _ := strings.Cut(word, "=")
			values[strings.ReplaceAll(name, "-", "_")] = value
		}
	}
	var lacks []string
	for _, o := range m.Options {
		switch value, set := values[o.Name]; {
		case !set:
			lacks = append(lacks, "modprobe.d does not set "+o.Name)
		case !m.Parameter(o).Allows(value):
			lacks = append(lacks, "modprobe.d sets "+o.Name+"="+value)
		}
	}
	return strings.Join(lacks, ", ")
}
