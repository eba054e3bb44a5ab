package checks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"nodegate/internal/host"
	"nodegate/policy"
)

// sysctl requires the value of one kernel parameter, or of all that a glob names.
type sysctl struct {
	policy.Sysctl
	module string // the module that brings it, if one does
}

func (s sysctl) Name() string              { return "sysctl." + s.Key.String() }
func (s sysctl) Metadata() policy.Metadata { return s.Sysctl.Metadata }

func (s sysctl) Inspect(_ context.Context, h *host.Host) (State, error) {
	if s.Key.IsGlob() {
		return s.inspectGlob(h)
	}
	st := State{Want: s.Want()}
	got, err := h.ReadSysctl(string(s.Key))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		st.Got = "no such parameter"
		st.Remedy = fmt.Sprintf("check the spelling; this kernel has no /proc/sys/%s", string(s.Key))
		if s.module != "" {
			st.Cause, st.Remedy = "module."+s.module, "load "+s.module
		}
		return st, nil
	case errors.Is(err, fs.ErrPermission):
		return st, fmt.Errorf("%s can be written but not read back: %w", s.Key, err)
	case err != nil:
		return st, err
	}
	st.Got, st.Pass = got, s.Allows(got)
	if !st.Pass {
		st.Remedy = "run: " + s.command(s.Key, got)
	}
	return st, nil
}

func (s sysctl) inspectGlob(h *host.Host) (State, error) {
	st := State{Want: s.Want(), Got: s.Want(), Pass: true}
	values, err := s.each(h)
	if err != nil {
		return st, err
	}
	if len(values) == 0 {
		st.Skip = "nothing matches " + s.Key.String() + " yet"
		return st, nil
	}
	var wrong []string
	for _, v := range values {
		st.Evidence = append(st.Evidence, Evidence{"/proc/sys/" + string(v.key), v.got})
		if !s.Allows(v.got) {
			wrong = append(wrong, v.key.String()+" is "+v.got)
			st.Remedy = "run: " + s.command(v.key, v.got)
		}
	}
	if wrong != nil {
		st.Pass, st.Got = false, strings.Join(wrong, ", ")
	}
	return st, nil
}

// value is one parameter as it reads.
type value struct {
	key policy.Key
	got string
}

// each reads every parameter that the key names. Those that vanish between the
// listing and the reading, with their interface, are left out.
func (s sysctl) each(h *host.Host) ([]value, error) {
	keys, err := h.GlobSysctl(string(s.Key))
	if err != nil {
		return nil, err
	}
	var all []value
	for _, k := range keys {
		got, err := h.ReadSysctl(k)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, value{policy.Key(k), got})
	}
	return all, nil
}

func (s sysctl) Fix(_ context.Context, h *host.Host) error {
	if !s.Key.IsGlob() {
		got, err := h.ReadSysctl(string(s.Key))
		if err != nil {
			return err
		}
		return writeSysctl(h, s.Key, got, s.Target(got))
	}
	values, err := s.each(h)
	if err != nil {
		return err
	}
	var errs []error
	for _, v := range values {
		if !s.Allows(v.got) {
			errs = append(errs, writeSysctl(h, v.key, v.got, s.Target(v.got)))
		}
	}
	return errors.Join(errs...)
}

func (s sysctl) command(key policy.Key, got string) string {
	return fmt.Sprintf("sysctl -w '%s=%s'", key, s.Target(got))
}

// writeSysctl writes and reads back: the kernel may clamp a value, or take it
// and do nothing.
func writeSysctl(h *host.Host, key policy.Key, was, value string) error {
	err := h.WriteSysctl(string(key), value)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s is read-only here: outside the initial network namespace, or without privilege: %w", key, err)
	}
	if err != nil {
		return err
	}
	got, err := h.ReadSysctl(string(key))
	if err != nil {
		return err
	}
	if got != value && got == was {
		return fmt.Errorf("wrote %s=%s; the kernel took it and kept %s", key, value, got)
	}
	if got != value {
		return fmt.Errorf("wrote %s=%s; the kernel made it %s", key, value, got)
	}
	return nil
}
