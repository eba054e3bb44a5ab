package setting

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"nodegate/checks"
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

func (s sysctl) Inspect(_ context.Context, h *host.Host) (checks.State, error) {
	if s.Key.IsGlob() {
		return s.inspectGlob(h)
	}
	st := checks.State{Want: s.Want()}
	got, err := h.ReadSysctl(string(s.Key))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.missing(&st)
		return st, nil
	case errors.Is(err, fs.ErrPermission):
		return st, fmt.Errorf("%s can be written but not read back: %w", s.Key, err)
	case err != nil:
		return st, err
	}
	st.Got, st.Pass = got, s.Allows(got)
	if !st.Pass {
		st.Changes = []checks.Change{writeSysctl(s.Key, got, s.Target(got))}
		st.Remedy = makeItLast
	}
	return st, nil
}

// missing describes parameters that the kernel does not have. Where a module
// brings them, the module is the cause, and what they then read decides what is
// written.
func (s sysctl) missing(st *checks.State) {
	st.Got = "no such parameter"
	st.Remedy = fmt.Sprintf("check the spelling; this kernel has no /proc/sys/%s", string(s.Key))
	if s.module == "" {
		return
	}
	st.Cause, st.Remedy = "module."+s.module, "load "+s.module
	var written []checks.Change
	st.Changes = []checks.Change{{
		What: s.Key.String(), From: st.Got, To: st.Want, Kind: checks.SetSysctl,
		AlsoWritten: func() []checks.Change { return written },
		Make: func(ctx context.Context, h *host.Host) error {
			keys := []string{string(s.Key)}
			if s.Key.IsGlob() {
				var err error
				if keys, err = h.GlobSysctl(string(s.Key)); err != nil {
					return err
				}
			}
			for _, k := range keys {
				got, err := h.ReadSysctl(k)
				if err != nil {
					return err
				}
				if s.Allows(got) {
					continue
				}
				c := writeSysctl(policy.Key(k), got, s.Target(got))
				if err := c.Make(ctx, h); err != nil {
					return err
				}
				written = append(written, c)
			}
			return nil
		},
	}}
}

func (s sysctl) inspectGlob(h *host.Host) (checks.State, error) {
	st := checks.Passing(s.Want())
	keys, err := h.GlobSysctl(string(s.Key))
	if err != nil {
		return st, err
	}
	var wrong []string
	for _, k := range keys {
		key := policy.Key(k)
		got, err := h.ReadSysctl(k)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it vanished since the listing, with its interface
		}
		if err != nil {
			return st, err
		}
		st.Evidence = append(st.Evidence, checks.Evidence{Source: "/proc/sys/" + k, Text: got})
		if !s.Allows(got) {
			wrong = append(wrong, key.String()+" is "+got)
			st.Changes = append(st.Changes, writeSysctl(key, got, s.Target(got)))
			st.Differs(strings.Join(wrong, ", "), makeItLast)
		}
	}
	if st.Evidence == nil && s.module != "" {
		if module, err := h.Module(s.module); err == nil && module == host.ModuleLoadable {
			st.Pass = false
			s.missing(&st)
			return st, nil
		}
	}
	if st.Evidence == nil {
		st.Skip = "nothing matches " + s.Key.String() + " yet"
	}
	return st, nil
}

// makeItLast is the remedy for a value that the policy asks for and that is another now.
const makeItLast = "run: nodegate apply; nodegate install makes it last"

// writeSysctl is the change that writes a parameter. The inspection after it
// proves it: the kernel may clamp a value, or accept it and do nothing.
func writeSysctl(key policy.Key, from, to string) checks.Change {
	var beside []checks.Change
	return checks.Change{
		What:        key.String(),
		From:        from,
		To:          to,
		Kind:        checks.SetSysctl,
		Target:      string(key),
		AlsoWritten: func() []checks.Change { return beside },
		Failed:      "run it as root, and on the machine itself where this is a container; or correct the policy",
		Make: func(_ context.Context, h *host.Host) error {
			before := h.CoupledParameters(string(key), from)
			err := h.WriteSysctl(string(key), to)
			if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
				return fmt.Errorf("%s is read-only here: outside the initial network namespace, or without privilege: %w", key, err)
			}
			for _, was := range before {
				if now, gone := h.ReadSysctl(was.Key); gone == nil {
					beside = append(beside, checks.Change{Kind: checks.SetSysctl, Target: was.Key, From: was.Value, To: now})
				}
			}
			return err
		},
	}
}
