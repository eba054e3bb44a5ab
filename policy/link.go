package policy

import (
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
)

func (r *reader) link(b block) (Link, bool) {
	before := len(r.diags)
	l := Link{Metadata: r.metadata(b), Name: b.Name}
	if !isName(b.Name, 63, "._-") || strings.ToLower(b.Name) != b.Name {
		r.errorf(b.Range, "Not a name", "The name of a link requirement is lower-case letters, digits, dots, - and _, "+
			"for example \"vxlan\"; %q is not.", b.Name)
	}
	l.Match = r.match(b.Blocks, b.Range)
	l.Selects = l.Match.String()
	l.Offloads = r.offloads(b)
	if n, ok := r.integer(b.get("mtu"), "mtu"); ok {
		if n < 68 || n > 65535 {
			r.errorf(b.at("mtu"), "Out of range", "mtu is between 68 and 65535 bytes; this is %d.", n)
		}
		l.MTU = int(n)
	}
	l.Sysctls = r.linkSysctls(b)
	if len(r.diags) == before && !r.mistaken(b.Body) && len(r.unknown) == 0 && len(l.Offloads) == 0 && l.MTU == 0 && len(l.Sysctls) == 0 {
		r.errorf(b.Range, "Nothing asked for", "Give link %q at least one of offload, mtu or sysctl.", b.Name)
	}
	return l, len(r.diags) == before
}

func (r *reader) offloads(b block) []Offload {
	v, ok := r.value(b.get("offload"))
	if !ok {
		return nil
	}
	if !v.Type().IsObjectType() && !v.Type().IsMapType() {
		r.errorf(b.at("offload"), "Wrong type", "offload is a map from feature to true or false: "+
			"offload = { tx-checksum-ip-generic = false }.")
		return nil
	}
	var all []Offload
	by := map[string]Offload{}
	for name, on := range v.AsValueMap() {
		features, group := offloadNames(name)
		if features == nil {
			r.errorf(b.at("offload"), "Unknown offload", "%q is not a feature that `ethtool -k` prints, nor one of its group names.%s",
				name, didYouMean(name, knownOffloads()))
			continue
		}
		if on.IsNull() || on.Type() != cty.Bool {
			r.errorf(b.at("offload"), "Wrong type", "offload %s is true or false, without quotes.", name)
			continue
		}
		o := Offload{Name: name, Features: features, Group: group, On: on.True()}
		for _, f := range features {
			if other, ok := by[f]; ok && other.On != o.On {
				r.errorf(b.at("offload"), "Contradiction", "%s and %s both set %s, one on and one off.",
					min(name, other.Name), max(name, other.Name), f)
			}
			by[f] = o
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b Offload) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (r *reader) linkSysctls(b block) []LinkSysctl {
	v, ok := r.value(b.get("sysctl"))
	if !ok {
		return nil
	}
	if !v.Type().IsObjectType() && !v.Type().IsMapType() {
		r.errorf(b.at("sysctl"), "Wrong type", "sysctl is a map from key to value, with * for the interface: "+
			"sysctl = { \"net.ipv4.conf.*.rp_filter\" = 0 }.")
		return nil
	}
	var all []LinkSysctl
	for name, value := range v.AsValueMap() {
		key, err := ParseKey(name)
		if err != nil {
			r.errorf(b.at("sysctl"), "Not a kernel parameter", "%s.", err)
			continue
		}
		stars, components := strings.Count(string(key), "*"), strings.Count("/"+string(key)+"/", "/*/")
		if stars != 1 || components != 1 || strings.ContainsAny(string(key), "?[") {
			r.errorf(b.at("sysctl"), "Not a parameter of an interface", "%q needs exactly one component *, "+
				"where the interface's name goes: \"net.ipv4.conf.*.rp_filter\".", name)
			continue
		}
		if text, ok := r.parameter(value, b.at("sysctl"), name); ok {
			r.checkParameter(key, b.at("sysctl"), []string{text}, b.at("sysctl"))
			all = append(all, LinkSysctl{key, text})
		}
	}
	slices.SortFunc(all, func(a, b LinkSysctl) int { return strings.Compare(string(a.Pattern), string(b.Pattern)) })
	return all
}
