package setting

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strings"
	"syscall"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// sysctl requires the value of one kernel parameter, or of all parameters that a glob matches.
type sysctl struct {
	policy.Sysctl
	modules []string        // that the policy loads
	others  []policy.Sysctl // requirements that contradict a glob for some parameters
}

// contradictingSysctls returns the requirements that take precedence over a glob: an exact name, or a glob before it.
func contradictingSysctls(p *policy.Policy, s policy.Sysctl) []policy.Sysctl {
	if !s.Key.IsGlob() {
		return nil
	}
	var all []policy.Sysctl
	before := true
	for _, o := range p.EachSysctl() {
		before = before && o.Key != s.Key
		if o.Applies() && o.Key.InSysfs() == s.Key.InSysfs() && (!o.Key.IsGlob() || before) && s.Contradicts(o) {
			all = append(all, o)
		}
	}
	return all
}

func (s sysctl) Name() string              { return s.Key.CheckName() }
func (s sysctl) Metadata() policy.Metadata { return s.Sysctl.Metadata }

func (s sysctl) Inspect(_ context.Context, h *host.Host) (checks.State, error) {
	if s.Key.IsGlob() {
		return s.inspectGlob(h)
	}
	st := checks.State{Want: s.Want()}
	got, err := h.ReadSysctl(string(s.Key))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.describeMissing(h, &st, s.moduleOf(h))
		return st, nil
	case errors.Is(err, fs.ErrPermission):
		return st, fmt.Errorf("%s can be written but not read back: %w", s.Key, err)
	case err != nil:
		return st, err
	}
	st.Got, st.Pass = got, s.Allows(got)
	if !st.Pass {
		st.Remedy = s.refused(h, s.Key, s.Target(got))
	}
	if !st.Pass && st.Remedy == "" {
		st.Changes = []checks.Change{writeSysctl(s.Key, got, s.Target(got))}
		st.Remedy = applyRemedy
		if s.Key.InSysfs() {
			st.Remedy = attributeRemedy
		}
	}
	return st, nil
}

// moduleOf returns the module that creates a missing parameter, or "". It reads the record of kernels only if a module of the policy is
// not loaded.
func (s sysctl) moduleOf(h *host.Host) string {
	if s.Key.InSysfs() { // such a module may be part of the kernel
		if name := policy.ModuleOf(s.Key); slices.Contains(s.modules, name) {
			return name
		}
		return ""
	}
	missing := slices.DeleteFunc(slices.Clone(s.modules), func(name string) bool {
		state, err := h.Module(name)
		return err == nil && state.Present()
	})
	return policy.ModuleFor(s.Key, missing)
}

// describeMissing describes parameters that the kernel does not have. If a module provides them,
// the module is the cause, and the change writes those that do not have the required value after it
// was loaded.
func (s sysctl) describeMissing(h *host.Host, st *checks.State, module string) {
	st.Got = "no such parameter"
	st.Remedy = fmt.Sprintf("check the spelling; this kernel has no %s", s.Key.File())
	if module == "" {
		dir, name := path.Split(s.Key.File())
		if siblings, err := h.Files.ReadDir(path.Clean(dir)); err == nil {
			st.Remedy += strings.ReplaceAll(policy.Nearest(name, siblings), " Did", "; did")
		}
		return
	}
	st.Cause, st.Remedy = "module."+module, h.LoadRemedy("run `modprobe "+module+"`", module)
	var written []checks.Change
	st.Changes = []checks.Change{{
		What: s.Key.String(), From: st.Got, To: st.Want, Kind: kindOf(s.Key),
		AlsoWritten: func() []checks.Change { return written },
		Make: func(ctx context.Context, h *host.Host) error {
			keys := []string{string(s.Key)}
			if s.Key.IsGlob() {
				var err error
				// Only now, because the parameters appear when the module loads.
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
	var wrong, stuck, refused, remedies []string
	for _, k := range keys {
		key := policy.Key(k)
		got, err := h.ReadSysctl(k)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it disappeared with its interface
		}
		if err != nil {
			return st, err
		}
		st.Evidence = append(st.Evidence, checks.Evidence{Source: key.File(), Text: got})
		if o, is := s.contradiction(key); is {
			wrong = append(wrong, fmt.Sprintf("%s is %s (%s at %s requires %s, but %s at %s requires %s)",
				key, got, s.Name(), s.Source(), s.Want(), o.Key.CheckName(), o.Source(), o.Want()))
			stuck = append(stuck, wrong[len(wrong)-1])
			continue
		}
		if s.Allows(got) || hasNoScheduler(key, got) {
			continue
		}
		wrong = append(wrong, key.String()+" is "+got)
		if no := s.refused(h, key, s.Target(got)); no != "" {
			refused = append(refused, key.String()+" is "+got)
			remedies = append(remedies, no)
		} else {
			st.Changes = append(st.Changes, writeSysctl(key, got, s.Target(got)))
		}
	}
	switch {
	case stuck != nil:
		st.Differs(strings.Join(wrong, ", "), "the policy contradicts itself: remove one of the two")
		st.Stuck = strings.Join(stuck, ", ")
	case wrong != nil:
		if len(wrong) > len(refused) {
			remedies = append(remedies, applyRemedy)
		}
		st.Differs(strings.Join(wrong, ", "), strings.Join(slices.Compact(remedies), "; "))
		st.Stuck = strings.Join(refused, ", ")
	}
	if st.Evidence == nil {
		module := s.moduleOf(h)
		if state, err := h.Module(module); module != "" && err == nil && state == host.ModuleLoadable {
			st.Pass = false
			s.describeMissing(h, &st, module)
			return st, nil
		}
	}
	if st.Evidence == nil {
		st.Skip = "no parameter matches " + s.Key.String() + " yet"
	}
	return st, nil
}

// contradiction returns the requirement that takes precedence for one parameter of a glob.
func (s sysctl) contradiction(key policy.Key) (policy.Sysctl, bool) {
	for _, o := range s.others {
		if matches, _ := path.Match(string(o.Key), string(key)); matches {
			return o, true
		}
	}
	return policy.Sysctl{}, false
}

// applyRemedy is the remedy for a value that differs from the policy.
const applyRemedy = "run `nodegate apply` now; `nodegate install` keeps it across reboots"

// writeSysctl returns the change that writes a parameter. The inspection afterwards proves it: the
// kernel may clamp a value, or accept it and do nothing.
func writeSysctl(key policy.Key, from, to string) checks.Change {
	var coupled []checks.Change
	kept := ""
	return checks.Change{
		What:        key.String(),
		From:        from,
		To:          to,
		Kind:        kindOf(key),
		Target:      string(key),
		AlsoWritten: func() []checks.Change { return coupled },
		Kept:        func() string { return kept },
		Failed:      "correct the value in the policy, or find the program that sets it: `nodegate watch` names it",
		Make: func(ctx context.Context, h *host.Host) error {
			before, addresses := h.Related(string(key)), ipv6Addresses(ctx, h, key, to)
			err := explainRefusal(key, to, h.WriteSysctl(string(key), to))
			for _, was := range before {
				now, gone := h.ReadSysctl(was.Key)
				restored := path.Base(was.Key) == path.Base(string(key)) && was.Value == from // revert restores it with key
				if gone == nil && (now != was.Value || !restored) {
					coupled = append(coupled, checks.Change{Kind: checks.SetSysctl, Target: was.Key, From: was.Value, To: now})
				}
			}
			left := ipv6Addresses(ctx, h, key, to)
			for _, a := range addresses {
				if !slices.Contains(left, a) {
					coupled = append(coupled, checks.Change{Kind: checks.DeleteAddress, Target: a.String(), From: "present", To: "deleted"})
				}
			}
			if now, unreadable := h.ReadSysctl(string(key)); err == nil && unreadable == nil && !(policy.Sysctl{Value: to}).Allows(now) {
				kept = now
			}
			return err
		},
	}
}

// ipv6Addresses returns the IPv6 addresses of the node that the kernel does not bring back itself, if the write would delete some.
func ipv6Addresses(ctx context.Context, h *host.Host, key policy.Key, to string) []netip.Addr {
	if path.Base(string(key)) != "disable_ipv6" || to == "0" {
		return nil
	}
	all, _ := h.Links.Addresses(ctx) // without them, revert cannot name those that are missing
	return slices.DeleteFunc(all, func(a netip.Addr) bool { return a.Is4() || a.IsLinkLocalUnicast() })
}

// explainRefusal adds the cause and the remedy to an error of a write.
func explainRefusal(key policy.Key, value string, err error) error {
	if _, known := errors.AsType[*host.Refusal](err); known || err == nil {
		return err
	}
	remedy := "run nodegate as root and outside containers, or correct the policy"
	switch {
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return &host.Refusal{
			Err:    fmt.Errorf("%s is read-only here: outside the initial network namespace, or without privilege: %w", key, err),
			Remedy: remedy,
		}
	case errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ERANGE):
		return &host.Refusal{
			Err: err, By: "the kernel does not accept " + value,
			Remedy: "correct the value in the policy; `nodegate lint` names the values that recorded kernels accept",
		}
	case errors.Is(err, fs.ErrNotExist):
		return &host.Refusal{
			Err: err, By: "it has disappeared", Remedy: "check the spelling; this kernel has no /proc/sys/" + string(key),
		}
	}
	return err
}
