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
	name      string     // tx-checksum-ip-generic, mtu, net.ipv4.conf.eth0.rp_filter
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
func (l link) readSettings(ctx context.Context, h *host.Host, found host.Link) ([]setting, error) {
	all, err := l.readOwnSettings(ctx, h, found)
	if err != nil {
		return nil, err
	}
	for _, o := range l.earlier {
		matches, err := o.matches(ctx, h, found)
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
				if other.name == all[i].name && !(policy.Sysctl{Value: all[i].want}).Allows(other.want) {
					l.contradict(&all[i], o.Name(), other.want, o.Metadata())
				}
			}
		}
	}
	for i := range all {
		for _, s := range l.sysctls {
			if about, _ := path.Match(string(s.Key), string(all[i].key)); about && all[i].absent == "" && !s.Allows(all[i].want) {
				l.contradict(&all[i], "sysctl."+s.Key.String(), s.Want(), s.Metadata)
			}
		}
	}
	return all, nil
}

// contradict marks a setting for which another requirement demands another value.
func (l link) contradict(s *setting, other, want string, at policy.Metadata) {
	s.ok, s.stuck = false, true
	s.got += fmt.Sprintf(" (%s at %s requires %s, but %s at %s requires %s)",
		l.Name(), l.Metadata().Source(), s.want, other, at.Source(), want)
	s.remedy = "the policy contradicts itself: remove one of the two, or let their match blocks select different interfaces"
}

// readOwnSettings does the same without a look at the other requirements.
func (l link) readOwnSettings(ctx context.Context, h *host.Host, found host.Link) ([]setting, error) {
	all, err := l.readFeatures(ctx, h, found.Name)
	if err != nil {
		return nil, err
	}
	if l.MTU != 0 {
		all = append(all, setting{
			name: "mtu", want: strconv.Itoa(l.MTU), got: strconv.Itoa(found.MTU), ok: found.MTU == l.MTU,
			remedy: fmt.Sprintf("run `ip link set dev %s mtu %d`", plain.Quote(found.Name), l.MTU),
		})
	}
	for _, s := range l.Sysctls {
		key := policy.Key(strings.Replace(string(s.Pattern), "*", found.Name, 1))
		got, err := h.ReadSysctl(string(key))
		if errors.Is(err, fs.ErrNotExist) {
			if _, gone := reloadLink(ctx, h, found); errors.Is(gone, fs.ErrNotExist) {
				return nil, gone
			}
			all = append(all, missingSetting(h, key, s))
			continue
		}
		if err != nil {
			return nil, err
		}
		required := policy.Sysctl{Value: s.Value}
		all = append(all, setting{
			name: key.String(), key: key, want: s.Value, got: got, ok: required.Allows(got),
			remedy: applyRemedy,
		})
	}
	return all, nil
}

// missingSetting returns the setting of a missing parameter. The kernel removes all IPv6 parameters
// of an interface whose MTU is below 1280 (addrconf_notify in net/ipv6/addrconf.c), and has none
// with ipv6.disable=1 (inet6_init in net/ipv6/af_inet6.c). No change would fix that, so the setting
// is skipped, as in a sysctl block with a glob. If the directory exists, the name is wrong.
func missingSetting(h *host.Host, key policy.Key, s policy.LinkSysctl) setting {
	set := setting{
		name: key.String(), key: key, want: s.Value, got: "no such parameter", stuck: true,
		remedy: "check the spelling, and that the interface has this address family",
	}
	if parent := path.Dir(string(s.Pattern)); parent == "net/ipv6/conf/*" || parent == "net/ipv6/neigh/*" {
		dir := "/proc/sys/" + path.Dir(string(key))
		// An older recording lacks the directory listing; its replay then gives the result of the
		// recorded node.
		if _, err := h.Files.ReadDir(dir); errors.Is(err, fs.ErrNotExist) {
			set.ok, set.stuck, set.absent = true, false, dir
		}
	}
	return set
}

func (l link) readFeatures(ctx context.Context, h *host.Host, name string) ([]setting, error) {
	if len(l.Offloads) == 0 {
		return nil, nil
	}
	have, err := h.Links.Features(ctx, name)
	if err != nil {
		return nil, err
	}
	var all []setting
	for _, o := range l.Offloads {
		members := 0
		for _, feature := range o.Features {
			f, known := have[feature]
			// In a group only features that this device can change count, as in ethtool.
			if o.Group && (!known || o.On && f.Fixed() && !f.Active) {
				continue
			}
			members++
			all = append(all, l.judgeFeature(name, feature, f, known, o.On))
		}
		if members == 0 {
			all = append(all, setting{
				name: o.Name, want: onOff(o.On), got: "fixed by the driver", stuck: true,
				remedy: "this device cannot change it: remove " + o.Name + " from the policy for this kind of link",
			})
		}
	}
	return all, nil
}

func (l link) judgeFeature(device, feature string, f host.Feature, known, on bool) setting {
	s := setting{name: feature, want: onOff(on), got: f.String(), ok: known && f.Active == on}
	s.remedy = fmt.Sprintf("run `ethtool -K %s %s %s`", plain.Quote(device), feature, s.want)
	switch {
	case !known:
		s.stuck, s.got, s.remedy = true, "unknown to this kernel", "run `ethtool -k "+device+"` for the known names"
	case s.ok:
	case f.Fixed():
		s.stuck, s.remedy = true, "the driver fixes it: remove "+feature+" from the policy for this kind of link"
	case on && f.Requested && l.disablesChecksum():
		// The kernel keeps segmentation off while checksums are off, which this same requirement
		// demands: this is not drift.
		s.ok = true
	case on && f.Requested:
		s.remedy = "another feature that it needs is off, usually a checksum: run `ethtool -k " + device + "`"
	}
	return s
}

func (l link) disablesChecksum() bool {
	return slices.ContainsFunc(l.Offloads, func(o policy.Offload) bool {
		return !o.On && strings.HasPrefix(o.Features[len(o.Features)-1], "tx-checksum-")
	})
}
