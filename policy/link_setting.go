package policy

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"nodegate/internal/ethtool"
	"nodegate/internal/sorted"
)

// LinkSetting is one value that a link must have.
type LinkSetting struct {
	Kind LinkKind
	// Name is "" for a scalar such as the MTU. An offload has the name that the author wrote, and channels, ring and coalesce have
	// ethtool's. In the path of a parameter, the first component "*" stands for the interface: net/ipv4/conf/*/rp_filter.
	Name     string
	Value    string   // "on", "1450", "max"
	Features []string // of an offload: the kernel's names for it
	Group    bool     // the name is one of ethtool's group names, a device may lack some of Features
}

// LinkKind is the kind of a link's setting: the argument of a link block.
type LinkKind string

// The kinds of settings.
const (
	Offload     LinkKind = "offload"
	MTU         LinkKind = "mtu"
	Channels    LinkKind = "channels"
	Ring        LinkKind = "ring"
	Coalesce    LinkKind = "coalesce"
	LinkSysctls LinkKind = "sysctl"
	LinkSysfs   LinkKind = "sysfs"
)

// linkKinds returns the kinds in the order in which they are reported.
func linkKinds() []LinkKind {
	all := []LinkKind{Offload}
	for _, k := range ethtool.Kinds() {
		if k.Name != ethtool.Offload {
			all = append(all, LinkKind(k.Name))
		}
	}
	return append(all, LinkSysctls, LinkSysfs)
}

// linkArguments returns the arguments of a link block that are settings.
func linkArguments() []string {
	var all []string
	for _, k := range linkKinds() {
		all = append(all, string(k))
	}
	return all
}

// Resets reports whether the driver may reset the link to change a setting of this kind.
func (k LinkKind) Resets() bool { return ethtool.Of(string(k)).Resets }

// IsParameter reports whether the settings of this kind are files, below /proc/sys or /sys.
func (k LinkKind) IsParameter() bool { return k == LinkSysctls || k == LinkSysfs }

// IsScalar reports whether a setting of this kind is one number, without a name: the MTU.
func (k LinkKind) IsScalar() bool { return ethtool.Of(string(k)).IsScalar() }

// Command returns the command of ip(8) that sets a scalar of a link.
func (k LinkKind) Command(link, value string) string {
	return strings.NewReplacer("LINK", link, "VALUE", value).Replace(ethtool.Of(string(k)).Command)
}

// Flag returns the flag of ethtool(8) that changes settings of this kind, or "".
func (k LinkKind) Flag() string { return ethtool.Of(string(k)).Flag }

// Label returns the setting's name in reports: "ring.rx".
func (s LinkSetting) Label() string {
	switch s.Kind {
	case Offload:
		return s.Name
	case LinkSysctls, LinkSysfs:
		return Key(s.Name).String()
	}
	if s.Kind.IsScalar() {
		return string(s.Kind)
	}
	return string(s.Kind) + "." + s.Name
}

// isSwitch reports whether the setting is on or off.
func (s LinkSetting) isSwitch() bool {
	return s.Kind == Offload || s.Kind == Coalesce && strings.HasPrefix(s.Name, "adaptive-")
}

// contradicts returns the name of the setting that both have with different values, or "".
func (s LinkSetting) contradicts(o LinkSetting) string {
	if s.Kind != o.Kind || sameValue(s.Value, o.Value) {
		return ""
	}
	if i := slices.IndexFunc(s.Features, func(f string) bool { return slices.Contains(o.Features, f) }); i >= 0 {
		return "offload " + s.Features[i]
	}
	if s.Name != o.Name || s.Kind == Offload {
		return ""
	}
	if s.Kind.IsParameter() {
		return string(s.Kind) + " " + s.Label()
	}
	return s.Label()
}

// decodeSettings reads the settings of a link block.
func (r *reader) decodeSettings(b Stanza) []LinkSetting {
	var all []LinkSetting
	for _, kind := range linkKinds() {
		name := string(kind)
		if k := ethtool.Of(name); k.IsScalar() {
			if n, ok := r.integer(b.Get(name), name); ok {
				if n < k.Least || n > k.Most {
					r.errorf(b.At(name), "Out of range", "%s must be between %d and %d%s; this is %d.", name, k.Least, k.Most, k.Unit, n)
				}
				all = append(all, LinkSetting{Kind: kind, Value: strconv.FormatInt(n, 10)})
			}
			continue
		}
		v, ok := r.value(b.Get(name))
		if !ok {
			continue
		}
		if !v.Type().IsObjectType() && !v.Type().IsMapType() {
			r.errorf(b.At(name), "Wrong type", "%s must be a map from %s.", name, cmp.Or(ethtool.Of(name).Like, map[LinkKind]string{
				LinkSysctls: "key to value, with * for the interface: sysctl = { \"net.ipv4.conf.*.rp_filter\" = 0 }",
				LinkSysfs:   "path to value, with * for the interface: sysfs = { \"class/net/*/threaded\" = 1 }",
			}[kind]))
			continue
		}
		var some []LinkSetting
		for name, value := range v.AsValueMap() {
			if s := (LinkSetting{Kind: kind, Name: name}); r.decodeSetting(b, &s, value) {
				some = append(some, s)
			}
		}
		sorted.By(some, func(a, b LinkSetting) int { return strings.Compare(a.Name, b.Name) })
		for i, s := range some {
			for _, o := range some[:i] {
				if s.contradicts(o) != "" {
					r.errorf(b.At(name), "Contradiction", "%s and %s both set %s, one on and one off. Remove one of the two.",
						o.Name, s.Name, strings.TrimPrefix(s.contradicts(o), "offload "))
				}
			}
		}
		all = append(all, some...)
	}
	return all
}

// decodeSetting reads the entry of a setting's map, whose kind and name are set.
func (r *reader) decodeSetting(b Stanza, s *LinkSetting, v cty.Value) bool {
	at := b.At(string(s.Kind))
	switch s.Kind {
	case LinkSysctls, LinkSysfs:
		return r.decodeLinkParameter(b, s, v)
	case Offload:
		if s.Features, s.Group = offloadNames(s.Name); s.Features == nil {
			r.errorf(at, "Unknown offload", "%q is neither a feature that `ethtool -k` prints nor one of its group names.%s",
				s.Name, DidYouMean(s.Name, KnownOffloads()))
			return false
		}
	default:
		if names := slices.Sorted(slices.Values(ethtool.Of(string(s.Kind)).Numbers)); !slices.Contains(names, s.Name) {
			r.errorf(at, "Unknown "+string(s.Kind)+" setting", "%q is not a name that ethtool uses for %s; known names: %s.%s", s.Name, s.Kind,
				strings.Join(names, ", "), DidYouMean(s.Name, names))
			return false
		}
	}
	known := !v.IsNull() && v.IsKnown()
	switch {
	case known && s.isSwitch() && v.Type() == cty.Bool:
		s.Value = map[bool]string{true: "on", false: "off"}[v.True()]
		return true
	case known && s.Kind.Resets() && v.Type() == cty.String && v.AsString() == "max":
		s.Value = "max"
		return true
	case known && !s.isSwitch() && v.Type() == cty.Number:
		if n, exact := v.AsBigFloat().Int64(); exact == big.Exact && n == int64(uint32(n)) {
			s.Value = strconv.FormatInt(n, 10)
			return true
		}
	}
	switch {
	case s.Kind == Offload:
		r.errorf(at, "Wrong type", "offload %s must be true or false, without quotes.", s.Name)
	case s.isSwitch():
		r.errorf(at, "Wrong value", "%s must be true or false, without quotes.", s.Label())
	case s.Kind.Resets():
		r.errorf(at, "Wrong value", "%s must be a whole number of at most 32 bits, or \"max\".", s.Label())
	default:
		r.errorf(at, "Wrong value", "%s must be a whole number of at most 32 bits.", s.Label())
	}
	return false
}

func (r *reader) decodeLinkParameter(b Stanza, s *LinkSetting, v cty.Value) bool {
	at, parse := b.At(string(s.Kind)), ParseKey
	if s.Kind == LinkSysfs {
		parse = parseAttribute
	}
	key, err := parse(s.Name)
	if s.Kind == LinkSysctls && !strings.ContainsAny(s.Name, "./") {
		err = fmt.Errorf("%q is the last part of a name. Write the whole name: \"net.ipv4.conf.*.%[1]s\"", s.Name)
	}
	if err != nil {
		r.errorf(at, "Not a kernel parameter", "%s.", err)
		return false
	}
	stars, components := strings.Count(string(key), "*"), strings.Count("/"+string(key)+"/", "/*/")
	switch {
	case s.Kind == LinkSysfs && !strings.HasPrefix(string(key), "/sys/class/net/*/"):
		r.errorf(at, "Not an attribute of an interface", "%q must begin with class/net/*/; the * stands for the interface's name.", s.Name)
		return false
	case s.Kind == LinkSysctls && (stars != 1 || components != 1 || strings.ContainsAny(string(key), "?[")):
		r.errorf(at, "Not a parameter of an interface", "%q must have exactly one component *, "+
			"which stands for the interface's name: \"net.ipv4.conf.*.rp_filter\".", s.Name)
		return false
	}
	text, ok := r.parameter(v, at, s.Name)
	s.Name, s.Value = string(key), text
	return ok
}
