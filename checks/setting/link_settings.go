package setting

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"nodegate/internal/host"
	"nodegate/internal/plain"
	"nodegate/policy"
)

// setting is one value that the requirement demands of one interface.
type setting struct {
	kind      policy.LinkKind
	name      string     // as host.LinkValues has it
	label     string     // tx-checksum-ip-generic, mtu, ring.rx, net.ipv4.conf.eth0.rp_filter
	key       policy.Key // set for a sysctl
	want, got string
	ok        bool
	stuck     bool // nodegate cannot change it
	remedy    string
	// absent is the missing directory of a parameter whose address family the interface lacks: the
	// setting is skipped.
	absent string
}

// readSettings reads every setting that the requirement demands of one interface. A setting for which another requirement
// of the policy demands another value is stuck: to write it would undo the other one. It returns fs.ErrNotExist if the
// interface is gone.
func (l Link) readSettings(ctx context.Context, h *host.Host, found host.Link) ([]setting, error) {
	all, err := l.readOwnSettings(ctx, h, found)
	if err != nil {
		return nil, err
	}
	for _, o := range l.earlier {
		matches, err := o.Matches(ctx, h, found)
		if err != nil {
			return nil, err
		}
		if !matches {
			continue
		}
		others, err := o.readOwnSettings(ctx, h, found)
		if err != nil {
			return nil, err
		}
		for i := range all {
			for _, other := range others {
				if other.label == all[i].label && !(policy.Sysctl{Value: all[i].want}).Allows(other.want) {
					l.contradict(&all[i], o.Name(), other.want, o.Metadata())
				}
			}
		}
	}
	for i := range all {
		for _, s := range l.parameters {
			if about, _ := path.Match(string(s.Key), string(all[i].key)); about && all[i].absent == "" && !s.Allows(all[i].want) {
				l.contradict(&all[i], s.Key.CheckName(), s.Want(), s.Metadata)
			}
		}
	}
	return all, nil
}

// contradict marks a setting for which another requirement demands another value.
func (l Link) contradict(s *setting, other, want string, at policy.Metadata) {
	s.ok, s.stuck = false, true
	s.got += fmt.Sprintf(" (%s at %s requires %s, but %s at %s requires %s)",
		l.Name(), l.Metadata().Source(), s.want, other, at.Source(), want)
	s.remedy = "the policy contradicts itself: remove one of the two, or let their match blocks select different interfaces"
}

// readOwnSettings does the same without a look at the other requirements.
func (l Link) readOwnSettings(ctx context.Context, h *host.Host, found host.Link) ([]setting, error) {
	var all []setting
	read := map[policy.LinkKind]map[string]host.LinkValue{}
	for _, s := range l.Settings {
		if s.Kind.IsParameter() {
			some, err := readParameters(ctx, h, found, s)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
			continue
		}
		have, known := read[s.Kind]
		switch scalar, is := found.Scalar(string(s.Kind)); {
		case known:
		case is: // the list of links and notices have it
			have = map[string]host.LinkValue{"": {Now: strconv.Itoa(scalar)}}
		default:
			var err error
			have, err = h.LinkValues(ctx, found.Name, string(s.Kind))
			if err != nil && (s.Kind == policy.Offload || !errors.Is(err, errors.ErrUnsupported)) {
				return nil, err
			}
			read[s.Kind] = have
		}
		if s.Kind == policy.Offload {
			all = append(all, l.judgeOffload(found.Name, s, have)...)
		} else {
			all = append(all, judgeValue(found.Name, s, have))
		}
	}
	return all, nil
}

// readParameters reads a parameter of one interface, or all that a further glob matches: class/net/*/queues/rx-*/rps_cpus.
func readParameters(ctx context.Context, h *host.Host, found host.Link, s policy.LinkSetting) ([]setting, error) {
	name := strings.Replace(s.Name, "*", found.Name, 1)
	keys := []string{name}
	if policy.Key(strings.Replace(s.Name, "*", "", 1)).IsGlob() {
		var err error
		if keys, err = h.GlobSysctl(name); err != nil {
			return nil, err
		}
	}
	if keys == nil {
		keys = []string{name} // which is missing
	}
	var all []setting
	for _, key := range keys {
		set, err := readParameter(ctx, h, found, s, policy.Key(key))
		if err != nil {
			return nil, err
		}
		all = append(all, set)
	}
	return all, nil
}

func readParameter(ctx context.Context, h *host.Host, found host.Link, s policy.LinkSetting, key policy.Key) (setting, error) {
	set := setting{kind: s.Kind, label: key.String(), key: key, want: s.Value, remedy: applyRemedy}
	var err error
	set.got, err = h.ReadSysctl(string(key))
	if errors.Is(err, fs.ErrNotExist) {
		_, gone := reloadLink(ctx, h, found)
		if errors.Is(gone, fs.ErrNotExist) {
			return set, gone
		}
		set.describeMissing(h, s.Name)
		return set, nil
	}
	set.ok = policy.Sysctl{Key: key, Value: s.Value}.Allows(set.got)
	return set, err
}

// describeMissing describes a missing parameter. The kernel removes all IPv6 parameters
// of an interface whose MTU is below 1280 (addrconf_notify in net/ipv6/addrconf.c), and has none
// with ipv6.disable=1 (inet6_init in net/ipv6/af_inet6.c). No change would fix that, so the setting
// is skipped, as in a sysctl block with a glob. If the directory exists, the name is wrong.
func (s *setting) describeMissing(h *host.Host, pattern string) {
	s.got, s.stuck = "no such parameter", true
	s.remedy = "check the spelling, and that the interface has this address family"
	if parent := path.Dir(pattern); parent == "net/ipv6/conf/*" || parent == "net/ipv6/neigh/*" {
		dir := "/proc/sys/" + path.Dir(string(s.key))
		// An older recording lacks the directory listing; its replay then gives the result of the
		// recorded node.
		if _, err := h.Files.ReadDir(dir); errors.Is(err, fs.ErrNotExist) {
			s.ok, s.stuck, s.absent = true, false, dir
		}
	}
}

// judgeValue compares one number. A driver without a ring or channel of that name has 0 and the limit 0 for it.
func judgeValue(device string, s policy.LinkSetting, have map[string]host.LinkValue) setting {
	v, known := have[s.Name]
	set := setting{kind: s.Kind, name: s.Name, label: s.Label(), want: s.Value, got: v.Now}
	if s.Value == "max" {
		set.want = strconv.FormatUint(uint64(v.Max), 10)
	}
	set.ok = known && set.got == set.want
	set.remedy = fmt.Sprintf("run `ethtool %s %s %s %s`", s.Kind.Flag(), plain.Quote(device), s.Name, set.want)
	want, _ := strconv.ParseUint(set.want, 10, 32) // 0 for on and off
	switch {
	case s.Kind.IsScalar():
		set.remedy = "run `" + s.Kind.Command(plain.Quote(device), set.want) + "`"
	case !known, s.Kind.Resets() && v.Max == 0 && s.Value != "0":
		set.ok, set.stuck, set.want, set.got = false, true, s.Value, "not supported by the driver"
		set.remedy = "remove " + set.label + " from the policy for this kind of link"
	case s.Kind.Resets() && want > uint64(v.Max):
		set.stuck = true
		set.remedy = fmt.Sprintf("the driver allows at most %d for %s of %s: require \"max\", or another number", v.Max, set.label, device)
	case s.Kind.Resets():
		set.remedy += ", which may reset the link"
	}
	return set
}

func (l Link) judgeOffload(device string, o policy.LinkSetting, have map[string]host.LinkValue) []setting {
	var all []setting
	for _, feature := range o.Features {
		f, known := have[feature]
		// In a group only features that this device can change count, as in ethtool.
		if o.Group && (!known || o.Value == "on" && f.Feature.Fixed() && f.Now == "off") {
			continue
		}
		all = append(all, l.judgeFeature(device, feature, o.Value, f, known))
	}
	if all == nil {
		all = []setting{{
			kind: o.Kind, label: o.Name, want: o.Value, got: "fixed by the driver", stuck: true,
			remedy: "this device cannot change it: remove " + o.Name + " from the policy for this kind of link",
		}}
	}
	return all
}

func (l Link) judgeFeature(device, feature, want string, v host.LinkValue, known bool) setting {
	s := setting{kind: policy.Offload, name: feature, label: feature, want: want, got: v.Feature.String(), ok: known && v.Now == want}
	s.remedy = fmt.Sprintf("run `ethtool -K %s %s %s`", plain.Quote(device), feature, want)
	blocked := want == "on" && v.Feature.Requested
	switch {
	case !known:
		s.stuck, s.got, s.remedy = true, "unknown to this kernel", "run `ethtool -k "+device+"` for the known names"
	case s.ok:
	case v.Feature.Fixed():
		s.stuck, s.remedy = true, "the driver fixes it: remove "+feature+" from the policy for this kind of link"
	case blocked && l.disablesChecksum():
		// The kernel keeps segmentation off while checksums are off, which this same requirement
		// demands: this is not drift.
		s.ok = true
	case blocked:
		s.remedy = "another feature that it needs is off, usually a checksum: run `ethtool -k " + device + "`"
	}
	return s
}

func (l Link) disablesChecksum() bool {
	return slices.ContainsFunc(l.Of(policy.Offload), func(o policy.LinkSetting) bool {
		return o.Value == "off" && strings.HasPrefix(o.Features[len(o.Features)-1], "tx-checksum-")
	})
}
