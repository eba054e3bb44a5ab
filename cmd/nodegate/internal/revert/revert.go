// Package revert restores the settings of a running machine that nodegate has changed.
package revert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/sorted"
	"nodegate/policy"
)

// Step is one setting and its revert.
type Step struct {
	Kind    checks.ChangeKind
	Target  string // the module, the path of the sysctl, or the link
	Feature string // the feature of an offload, or the member of another list
	Was     string // the value before nodegate's first change
	Set     string // the value of nodegate's last change
	Along   string // the parameter with which the kernel changed it last, and restores it, or ""
	Now     string
	State   SettingState
}

// SettingState is the current state of a setting.
type SettingState int

// The states of a setting.
const (
	AsSet   SettingState = iota // as nodegate set it; it can be restored
	Back                        // as before nodegate, or gone
	Foreign                     // changed by another program since
	Stays                       // a loaded module; unloading it would break its users
	Deleted                     // an address, which only the program that configured it can bring back
)

// String returns the setting's name: "net.ipv4.ip_forward", "eth0 mtu", "eth0 gro".
func (s Step) String() string {
	switch s.Kind {
	case checks.SetSysctl, checks.SetSysfs:
		return policy.Key(s.Target).String()
	case checks.SetFeatures:
		return s.Target + " " + s.Feature
	case checks.DeleteAddress:
		return "address " + s.Target
	}
	return strings.TrimSpace(s.Target + " " + string(s.Kind) + " " + s.Feature)
}

// Steps returns one step for each setting that the changes have written or moved, in the order in which to restore them: newest first,
// but a parameter that changes others before these. The changes are given newest first.
func Steps(ctx context.Context, h *host.Host, changes []report.AppliedChange) ([]Step, error) {
	var steps []Step
	at := map[string]int{}
	for _, c := range changes {
		for i := len(c.Writes) - 1; i >= 0; i-- {
			for _, s := range splitWrite(c.Writes[i]) {
				if newer, known := at[s.String()]; known {
					steps[newer].Was = s.Was
					continue
				}
				at[s.String()] = len(steps)
				steps = append(steps, s)
			}
		}
	}
	steps = slices.DeleteFunc(steps, func(s Step) bool { return s.Was == s.Set && s.Along == "" && !s.Kind.IsList() }) // it failed
	sorted.By(steps, func(a, b Step) int { return cmp.Compare(a.order(), b.order()) })
	for i := range steps {
		if err := steps[i].readState(ctx, h); err != nil {
			return nil, fmt.Errorf("reading %s: %w", steps[i], err)
		}
	}
	return steps, nil
}

func (s Step) order() int {
	if s.Kind == checks.SetSysctl {
		return host.WriteOrder(s.Target)
	}
	return host.WriteOrder("")
}

// splitWrite returns one step for a write, or one for each member of a list.
func splitWrite(w report.Write) []Step {
	if !w.Kind.IsList() {
		return []Step{{Kind: w.Kind, Target: w.Target, Was: w.From, Set: w.To, Along: w.Along}}
	}
	to := map[string]string{}
	for entry := range strings.SplitSeq(w.To, ", ") {
		name, value, _ := strings.Cut(entry, "=")
		to[name] = value
	}
	var all []Step
	for entry := range strings.SplitSeq(w.From, ", ") {
		name, value, _ := strings.Cut(entry, "=")
		value, _, _ = strings.Cut(value, " ") // "off [requested on]"
		all = append(all, Step{Kind: w.Kind, Target: w.Target, Feature: name, Was: value, Set: to[name]})
	}
	return all
}

// readState reads the current value of the setting and sets its state.
func (s *Step) readState(ctx context.Context, h *host.Host) error {
	var err error
	s.State = AsSet
	switch s.Kind {
	case checks.LoadModule:
		s.State = Stays
		return nil
	case checks.DeleteAddress:
		addresses, err := h.Links.Addresses(ctx)
		if s.State = Deleted; slices.ContainsFunc(addresses, func(a netip.Addr) bool { return a.String() == s.Target }) {
			s.State = Back
		}
		return err
	case checks.SetSysctl, checks.SetSysfs:
		s.Now, err = h.ReadSysctl(s.Target)
	default:
		var values map[string]host.LinkValue
		values, err = h.LinkValues(ctx, s.Target, string(s.Kind))
		s.Now = values[s.Feature].Now
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.State = Back
		return nil
	case s.same(s.Was):
		s.State = Back
	case !s.same(s.Set):
		s.State = Foreign
	}
	return err
}

// same compares the current value as requirements do: 0x10 equals 16. A sysctl may be empty, as net.ipv4.ip_local_reserved_ports
// usually is.
func (s *Step) same(want string) bool {
	required := policy.Sysctl{Value: want}
	if s.Kind == checks.SetSysfs {
		required.Key = policy.Key(s.Target)
	}
	return want == s.Now || want != "" && required.Allows(s.Now)
}

// Do writes the previous value and reads it back. A failed write is not an error if the value is right anyway, because the kernel has
// restored it along with another setting: 0 cannot be written to vm.dirty_bytes, which is 0 while vm.dirty_ratio is in use.
func (s *Step) Do(ctx context.Context, h *host.Host) error {
	wrote := s.writeValue(ctx, h)
	err := s.readState(ctx, h)
	switch {
	case err == nil && s.State == Back:
		return nil
	case wrote != nil:
		return wrote
	case err != nil:
		return err
	}
	return fmt.Errorf("wrote %s, but the kernel reports %s", s.Was, s.Now)
}

func (s *Step) writeValue(ctx context.Context, h *host.Host) error {
	if s.Kind == checks.SetSysctl || s.Kind == checks.SetSysfs {
		return h.WriteSysctl(s.Target, s.Was)
	}
	return h.Links.Set(ctx, s.Target, string(s.Kind), map[string]string{s.Feature: s.Was})
}

// Reassert restores a setting if it is not yet, or again if the kernel has changed it along with another restored setting.
func (s *Step) Reassert(ctx context.Context, h *host.Host) error {
	err := s.readState(ctx, h)
	switch {
	case err != nil || s.State == Back:
		return err
	case s.State == Deleted:
		return errors.New("the kernel deleted it when IPv6 was disabled; restart the program that configures the network, or reboot")
	}
	return s.Do(ctx, h)
}

// Names returns the names of a change's steps.
func Names(c report.AppliedChange) []string {
	var names []string
	for _, w := range c.Writes {
		for _, s := range splitWrite(w) {
			names = append(names, s.String())
		}
	}
	return names
}
