package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// applyOverrides changes the attributes of the requirement that each override block names, before any attribute is evaluated.
func (l *loader) applyOverrides() {
	var overrides []block
	l.blocks = slices.DeleteFunc(l.blocks, func(b block) bool {
		if b.Type == "override" {
			overrides = append(overrides, b)
		}
		return b.Type == "override"
	})
	type target struct {
		name string
		rank int // of the override, which a block of a lower rank may override
	}
	done := map[target]hcl.Range{}
	slices.SortStableFunc(overrides, func(a, b block) int { // a base's first
		return cmp.Compare(b.Rank, a.Rank)
	})
	for _, o := range overrides {
		name := canonicalName(o.Name)
		first, again := done[target{name, o.Rank}]
		if again && o.Former != "" {
			continue // two checks became one, and the first override stands
		}
		if again {
			l.errorf(o.Range, "Overridden twice", "%s is already overridden at %s. Merge the two blocks.%s",
				o.Name, place(first), ifPools(o.Range, first))
			continue
		}
		done[target{name, o.Rank}] = o.Range
		found := false
		for i := range l.blocks { // several built-in policies may contain the requirement
			if b := &l.blocks[i]; b.Rank > o.Rank && b.checkName() == name {
				l.override(b, o, !found)
				found = true
			}
		}
		if !found && o.Former == "" { // a check that has gone needs no override
			l.reportNoTarget(o, name)
		}
	}
}

// reportNoTarget reports an override that does not name a built-in requirement.
func (l *loader) reportNoTarget(o block, name string) {
	var names []string
	for _, b := range l.blocks {
		if b.Rank > o.Rank && b.checkName() != "" {
			names = append(names, b.checkName())
		}
	}
	if i := slices.IndexFunc(l.blocks, func(b block) bool { return b.checkName() == name }); i >= 0 {
		l.errorf(o.Range, "Not a built-in requirement", "%s is your own requirement. Change it at %s.", o.Name, place(l.blocks[i].Range))
		return
	}
	instead := Nearest(name, names)
	switch {
	case slices.Contains(blockTypes(), o.Name):
		instead = " Write a block of your own: " + lineOf(o.Name) + "."
	case strings.ContainsAny(o.Name, "*?["):
		instead = " An override names one requirement: override \"sysctl.kernel.panic\" { value = 30 }."
	case instead == "" && len(names) > 0:
		instead = " List what it has with `nodegate policy show --effective`."
	case instead == "":
		instead = " A use block such as use \"kubernetes\" {} puts a built-in policy in use."
	}
	l.errorf(o.Range, "Nothing to override", "No policy in use has %s.%s", o.Name, instead)
}

// override replaces attributes of b by the attributes of o. The attributes for the value of a sysctl belong together: an override with min
// removes value. report controls whether mistakes in o are reported.
func (l *loader) override(b *block, o block, report bool) {
	content, diags := o.Body.Content(blockSchema(b.Type))
	if report {
		l.diags = append(l.diags, mendUnknown(diags, b.Type, b.Name, blockSchema(b.Type), nil)...)
	}
	attrs := hcl.Attributes{}
	values := []string{"value", "min", "max", "one_of"}
	replaces := slices.ContainsFunc(values, func(v string) bool { _, ok := content.Attributes[v]; return ok })
	for name, a := range b.Attrs {
		if !replaces || !slices.Contains(values, name) {
			attrs[name] = a
		}
	}
	maps.Copy(attrs, content.Attributes)
	b.Attrs, b.Override = attrs, o.Range
	if len(content.Blocks) > 0 {
		b.Blocks = content.Blocks
	}
}

// findIneffective reports blocks that seem meant to switch off a built-in requirement but do not.
func (l *loader) findIneffective() hcl.Diagnostics {
	r := l.fresh()
	warns := func(b block) bool {
		v, known := r.value(b.get("severity"))
		return known && v.RawEquals(cty.StringVal(string(Warn)))
	}
	for _, b := range l.blocks {
		if b.isBuiltin() || b.checkName() == "" {
			continue
		}
		v, known := r.value(b.get("when"))
		off := known && v.Type() == cty.Bool && v.False()
		for _, of := range l.blocks {
			adds := (b.Type == "sysctl" || b.Type == "sysfs") && !off // it adds its own value when it applies
			switch merged := b.Type != "check" && b.Type != "link"; {
			case of.Rank <= b.Rank || of.checkName() != b.checkName() || of.get("when") != nil:
			case b.get("when") != nil && !adds:
				r.warnf(b.at("when"), "No effect", "%s is still required at %s, without a when. To switch that off, write: override %q { when = ... }.",
					b.checkName(), place(of.Range), b.checkName())
			case merged && !off && warns(b) && !warns(of):
				r.warnf(b.at("severity"), "No effect", "%s still blocks, because of %s. To change that, write: override %[1]q { severity = \"warn\" }.",
					b.checkName(), place(of.Range))
			}
		}
	}
	return r.warnings
}

// checkName returns the name of the check that the block creates, or "" if it creates no check.
func (b block) checkName() string {
	switch b.Type {
	case "module", "sysctl", "sysfs", "link", "probe":
		return canonicalName(b.Type + "." + b.Name)
	case "check":
		return b.Name
	}
	return ""
}

// canonicalName returns the spelling in which names of checks are compared.
func canonicalName(name string) string {
	if m, ok := strings.CutPrefix(name, "module."); ok {
		return "module." + strings.ReplaceAll(m, "-", "_")
	}
	if s, ok := strings.CutPrefix(name, "sysctl."); ok {
		if k, err := ParseKey(s); err == nil {
			return "sysctl." + k.String()
		}
	}
	if s, ok := strings.CutPrefix(name, "sysfs."); ok {
		return "sysfs." + strings.TrimPrefix(s, sysfsRoot)
	}
	return name
}
