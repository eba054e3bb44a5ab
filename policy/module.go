package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"nodegate/internal/sorted"
	"nodegate/policy/kernels"
)

// Module requires a kernel module to be loaded or built into the kernel, or not to be loaded at all.
type Module struct {
	Metadata
	Name    string         // as the kernel spells it: underscores
	Options []ModuleOption // parameters, in the order of their names
	Absent  bool           // it must not load
}

// ModuleOption is one parameter of a module.
type ModuleOption struct{ Name, Value string }

// Parameter returns the requirement on the attribute that shows the parameter of a loaded module.
func (m Module) Parameter(o ModuleOption) Sysctl {
	return Sysctl{Metadata: m.Metadata, Key: sysfsRoot + Key("module/"+m.Name+"/parameters/"+o.Name), Value: o.Value}
}

// Hides reports whether the module takes the option and never shows it below /sys.
func (m Module) Hides(o ModuleOption) bool {
	return slices.ContainsFunc(kernels.Rules("hidden"), func(rule kernels.Rule) bool {
		return rule.Words[0] == m.Name && slices.Contains(rule.Words[1:], o.Name)
	})
}

// Arguments returns the options as modprobe takes them: "hashsize=65536".
func (m Module) Arguments() []string {
	var all []string
	for _, o := range m.Options {
		all = append(all, o.Name+"="+o.Value)
	}
	return all
}

// Want returns the requirement as a phrase: "loaded", "loaded with hashsize=65536", "not loadable".
func (m Module) Want() string {
	switch {
	case m.Absent:
		return "not loadable"
	case m.Options != nil:
		return "loaded with " + strings.Join(m.Arguments(), " ")
	}
	return "loaded"
}

// ModprobeLines returns the lines of modprobe.d(5) that make modprobe and the kernel's own requests obey the module's block. A blacklist
// alone stops only requests by an alias.
func (m Module) ModprobeLines() []string {
	switch {
	case m.Absent:
		return []string{"blacklist " + m.Name, "install " + m.Name + " /bin/false"}
	case m.Options != nil:
		return []string{"options " + m.Name + " " + strings.Join(m.Arguments(), " ")}
	}
	return nil
}

func (r *reader) decodeModule(b Stanza) (Module, bool) {
	about := r.decodeMetadata(b)
	if !isName(b.Name, 55, "-_") || b.Name[0] == '-' {
		r.errorf(b.Range, "Not a module name", "Write the name of a kernel module as `lsmod` prints it, in letters, digits, - and _; "+
			"%q is not such a name.%s", b.Name, OddCharacter(b.Name))
		return Module{}, false
	}
	before := len(r.diags)
	m := Module{Metadata: about, Name: strings.ReplaceAll(b.Name, "-", "_"), Absent: r.flag(b.Get("absent"), "absent", false)}
	m.Options = r.decodeModuleOptions(b)
	if m.Absent && m.Options != nil {
		r.errorf(b.At("options"), "Contradiction", "A module that must not load takes no options. Remove options or absent.")
	}
	return m, len(r.diags) == before
}

func (r *reader) decodeModuleOptions(b Stanza) []ModuleOption {
	v, ok := r.value(b.Get("options"))
	if !ok {
		return nil
	}
	if !v.Type().IsObjectType() && !v.Type().IsMapType() || v.LengthInt() == 0 {
		r.errorf(b.At("options"), "Wrong type",
			"options must be a map from a parameter of the module to its value: options = { hashsize = 65536 }.")
		return nil
	}
	var all []ModuleOption
	for name, value := range v.AsValueMap() {
		if !isName(name, 63, "-_") {
			r.errorf(b.At("options"), "Not a parameter", "Write the parameters of the module as `modinfo -p` prints them; %q is not one.%s", name,
				OddCharacter(name))
			continue
		}
		if !value.IsNull() && value.Type() == cty.Bool { // param_set_bool of kernel/params.c
			value = cty.StringVal(map[bool]string{true: "Y", false: "N"}[value.True()])
		}
		text, ok := r.parameter(value, b.At("options"), name)
		if ok && strings.ContainsAny(text, " \"'\\#") {
			r.errorf(b.At("options"), "Wrong value",
				"The value of %s must not contain spaces, quotes, # or backslashes: modprobe.d would split it.", name)
			continue
		}
		all = append(all, ModuleOption{strings.ReplaceAll(name, "-", "_"), text})
	}
	sorted.By(all, func(a, b ModuleOption) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// mergeModules merges modules of one name into the first of them.
func (r *reader) mergeModules(all []Module) []Module {
	modules := all[:0]
	for _, m := range all {
		i := slices.IndexFunc(modules, func(o Module) bool { return o.Name == m.Name && o.Applies() })
		if i < 0 || !m.Applies() {
			modules = append(modules, m)
			continue
		}
		first := &modules[i]
		if first.Absent != m.Absent {
			here, other, remedy := m, *first, "Remove one of the two."
			if here.Rank > other.Rank {
				here, other = other, here
			}
			if here.Rank < other.Rank {
				remedy = fmt.Sprintf("Replace your block by: override %q { absent = %t }", "module."+m.Name, here.Absent)
			}
			if here.Absent && other.Rank == OfBuiltin {
				remedy = "Remove your block, because nodes need the module: " + other.Reason
			}
			r.errorf(here.Range, "Contradiction", "Module %s must be %s here, but %s at %s. %s", m.Name, here.Want(), other.Want(),
				Place(other.Range), remedy)
			continue
		}
		options := slices.Clone(first.Options)
		for _, o := range m.Options {
			k := slices.IndexFunc(options, func(other ModuleOption) bool { return other.Name == o.Name })
			switch {
			case k < 0:
				options = append(options, o)
			case options[k] != o:
				r.errorf(m.Range, "Contradiction", "Option %s of module %s is %s here, but %s at %s. Remove one of the two.",
					o.Name, m.Name, o.Value, options[k].Value, Place(first.Range))
			}
		}
		sorted.By(options, func(a, b ModuleOption) int { return strings.Compare(a.Name, b.Name) })
		first.Options = options
		mergeSeverity(&first.Metadata, m.Metadata)
		r.mergeDrift("module "+m.Name, &first.Metadata, m.Metadata)
	}
	return modules
}
