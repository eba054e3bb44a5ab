// Package revert puts back the settings of a running machine that nodegate has changed.
package revert

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/policy"
)

// Step is one setting, and what is to be done about it.
type Step struct {
	Kind    checks.ChangeKind
	Target  string // the module, the parameter's path, the link
	Feature string // of an offload
	Was     string // before nodegate changed it first
	Set     string // what nodegate set it to, the last time
	Now     string
	State   SettingState
}

// SettingState is how a setting is now.
type SettingState int

// The states of a setting.
const (
	AsSet   SettingState = iota // as nodegate set it: it can be put back
	Back                        // as it was before nodegate, or gone
	Foreign                     // somebody else has changed it since
	Stays                       // a loaded module is not unloaded: what uses it would break
)

// String names the setting: "net.ipv4.ip_forward", "eth0 mtu", "eth0 gro".
func (s Step) String() string {
	switch s.Kind {
	case checks.SetSysctl:
		return policy.Key(s.Target).String()
	case checks.SetFeatures:
		return s.Target + " " + s.Feature
	}
	return s.Target + " " + string(s.Kind)
}

// Steps returns one step for each setting that the changes, the newest first, have
// written, in the order in which they are to be put back.
func Steps(ctx context.Context, h *host.Host, changes []report.AppliedChange) ([]Step, error) {
	var steps []Step
	at := map[string]int{}
	for _, c := range changes {
		for i := len(c.Writes) - 1; i >= 0; i-- {
			for _, s := range split(c.Writes[i]) {
				if newer, known := at[s.String()]; known {
					steps[newer].Was = s.Was
					continue
				}
				at[s.String()] = len(steps)
				steps = append(steps, s)
			}
		}
	}
	for i := range steps {
		if err := steps[i].look(ctx, h); err != nil {
			return nil, fmt.Errorf("reading %s: %w", steps[i], err)
		}
	}
	return steps, nil
}

// split returns one step for a value, or for each feature of an offload.
func split(w report.Write) []Step {
	if w.Kind != checks.SetFeatures {
		return []Step{{Kind: w.Kind, Target: w.Target, Was: w.From, Set: w.To}}
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

// look reads the setting as it is now.
func (s *Step) look(ctx context.Context, h *host.Host) error {
	var err error
	s.State = AsSet
	switch s.Kind {
	case checks.LoadModule:
		s.State = Stays
		return nil
	case checks.SetSysctl:
		s.Now, err = h.ReadSysctl(s.Target)
	case checks.SetMTU:
		var l host.Link
		l, err = h.Links.Get(ctx, s.Target)
		s.Now = strconv.Itoa(l.MTU)
	case checks.SetFeatures:
		var features map[string]host.Feature
		features, err = h.Links.Features(ctx, s.Target)
		s.Now = onOff(features[s.Feature].Active)
	default:
		return fmt.Errorf("%q is no kind of change: another version of nodegate wrote it", s.Kind)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.State = Back
		return nil
	case same(s.Was, s.Now):
		s.State = Back
	case !same(s.Set, s.Now):
		s.State = Foreign
	}
	return err
}

// same compares values as requirements do: 0x10 is 16. A parameter may be empty, as net.ipv4.ip_local_reserved_ports mostly is.
func same(want, got string) bool {
	return want == got || want != "" && policy.Sysctl{Value: want}.Allows(got)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// Do writes the value that was there before, and reads it back. The kernel may have made it so already, with another one: to
// vm.dirty_bytes nobody can write the 0 that it is while vm.dirty_ratio counts.
func (s *Step) Do(ctx context.Context, h *host.Host) error {
	wrote := s.write(ctx, h)
	err := s.look(ctx, h)
	switch {
	case err == nil && s.State == Back:
		return nil
	case wrote != nil:
		return wrote
	case err != nil:
		return err
	}
	return fmt.Errorf("wrote %s; the kernel made it %s", s.Was, s.Now)
}

func (s *Step) write(ctx context.Context, h *host.Host) error {
	switch s.Kind {
	case checks.SetSysctl:
		return h.WriteSysctl(s.Target, s.Was)
	case checks.SetMTU:
		mtu, err := strconv.Atoi(s.Was)
		if err != nil {
			return err
		}
		return h.Links.SetMTU(ctx, s.Target, mtu)
	case checks.SetFeatures:
		return h.Links.SetFeatures(ctx, s.Target, map[string]bool{s.Feature: s.Was == "on"})
	}
	return nil
}

// Reassert puts a setting that was as before back once more, where the kernel has changed it with another one that was put back.
func (s *Step) Reassert(ctx context.Context, h *host.Host) error {
	if err := s.look(ctx, h); err != nil || s.State == Back {
		return err
	}
	return s.Do(ctx, h)
}

// Names returns what the steps of a change are called.
func Names(c report.AppliedChange) []string {
	var names []string
	for _, w := range c.Writes {
		for _, s := range split(w) {
			names = append(names, s.String())
		}
	}
	return names
}
