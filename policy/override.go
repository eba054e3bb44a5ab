package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// applyOverrides changes the attributes of the requirement that each override block names, before any attribute is evaluated.
func (l *loader) applyOverrides() {
	var overrides []Stanza
	l.blocks = slices.DeleteFunc(l.blocks, func(b Stanza) bool {
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
	slices.SortStableFunc(overrides, func(a, b Stanza) int { // a base's first
		return cmp.Compare(b.Rank, a.Rank)
	})
	for _, o := range overrides {
		name := CanonicalName(o.Name)
		first, again := done[target{name, o.Rank}]
		if again && o.Former != "" {
			continue // two checks became one, and the first override stands
		}
		if again {
			l.errorf(o.Range, "Overridden twice", "%s is already overridden at %s. Merge the two blocks.%s",
				o.Name, Place(first), ifPools(o.Range, first))
			continue
		}
		done[target{name, o.Rank}] = o.Range
		found := false
		for i := range l.blocks { // several built-in policies may contain the requirement
			if b := &l.blocks[i]; b.Rank > o.Rank && b.CheckName() == name {
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
func (l *loader) reportNoTarget(o Stanza, name string) {
	var names []string
	for _, b := range l.blocks {
		if b.Rank > o.Rank && b.CheckName() != "" {
			names = append(names, b.CheckName())
		}
	}
	if i := slices.IndexFunc(l.blocks, func(b Stanza) bool { return b.CheckName() == name }); i >= 0 {
		l.errorf(o.Range, "Not a built-in requirement", "%s is your own requirement. Change it at %s.", o.Name, Place(l.blocks[i].Range))
		return
	}
	instead := Nearest(name, names)
	switch {
	case slices.Contains(blockTypes(), o.Name):
		instead = " Write a block of your own: " + LineOf(o.Name) + "."
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
func (l *loader) override(b *Stanza, o Stanza, report bool) {
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

// CheckName returns the name of the check that the block creates, or "" if it creates no check.
func (b Stanza) CheckName() string {
	switch b.Type {
	case "module", "sysctl", "sysfs", "link", "probe":
		return CanonicalName(b.Type + "." + b.Name)
	case "check":
		return b.Name
	}
	return ""
}

// CanonicalName returns the spelling in which names of checks are compared.
func CanonicalName(name string) string {
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
