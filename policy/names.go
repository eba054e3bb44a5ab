package policy

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/agext/levenshtein"
	"github.com/hashicorp/hcl/v2"

	"nodegate/internal/sorted"
	"nodegate/policy/kernels"
)

// Only Lint sets the catalogue: the boot path does not read it.

func (r *reader) warnf(at hcl.Range, summary, detail string, args ...any) {
	r.warnings = append(r.warnings, &hcl.Diagnostic{
		Severity: hcl.DiagWarning, Summary: summary, Detail: fmt.Sprintf(detail, args...), Subject: at.Ptr(),
	})
}

// noKernel ends the message about a name that is not in the catalogue.
const noKernel = "no kernel of Debian 11, 12 or 13 has it."

func (r *reader) checkModule(b block) {
	if name := strings.ReplaceAll(b.Name, "-", "_"); r.names && !r.isAllowed(name) && !slices.Contains(r.catalogue.Modules, name) {
		r.warnf(b.Range, "Unknown module", "%s: %s%s", b.Name, noKernel, cmp.Or(afterRemoval(name), Nearest(name, r.catalogue.Modules)))
	}
}

func (r *reader) checkKind(kind string, at hcl.Range) {
	if r.names && kind != "" && !r.isAllowed(kind) && !slices.Contains(r.catalogue.Kinds, kind) {
		r.warnf(at, "Unknown kind", "%q is not a kind of link: %s%s", kind, noKernel, Nearest(kind, r.catalogue.Kinds))
	}
}

// checkMatch reports a name, kind or driver that no link can have.
func (r *reader) checkMatch(m Match, b block) {
	if !r.checkCharacters(m, b) {
		return
	}
	r.checkKind(m.Kind, b.at("kind"))
	if r.catalogue != nil && len(m.Name) > 15 && !strings.ContainsAny(m.Name, "*?[\\") {
		r.errorf(b.at("name"), "Not a name of a link", "%q matches no link: a name has at most 15 bytes.", m.Name)
	}
	if r.names && strings.ContainsAny(m.Name, "|^${}()+") {
		r.warnf(b.at("name"), "Regular expression",
			"name is a glob: * matches any string, ? one character, [01] one of these characters. %q matches no link.%s", m.Name, globFor(m.Name))
	}
	module := strings.ReplaceAll(m.Driver, "-", "_")
	if r.names && module != "" && !r.isAllowed(module) && !strings.Contains(module, " ") && !slices.Contains(r.catalogue.Modules, module) {
		r.warnf(b.at("driver"), "Unknown driver",
			"%q: %s `ethtool -i LINK` prints the driver of a link.%s", m.Driver, noKernel, Nearest(module, r.catalogue.Modules))
	}
}

// checkGate reports a gate that would wait for itself, and settings that do not work as they seem to.
func (r *reader) checkGate(g Gate, b block) {
	runtimes := []string{"containerd.service", "crio.service", "cri-o.service", "docker.service", "cri-docker.service"}
	switch {
	case strings.HasPrefix(g.Unit, "nodegate"):
		r.errorf(b.at("unit"), "Gate waits for itself",
			"%s is one of nodegate's own units and would wait for itself. Name the unit that runs kubelet.", g.Unit)
	case slices.Contains(runtimes, g.Unit):
		r.warnf(b.at("unit"), "Not kubelet's unit", "%s is the container runtime: it would wait for the check kubelet.runtime, which waits for "+
			"it. Name the unit that runs kubelet.", g.Unit)
	case g.Interval >= g.Budget:
		at := b.at("interval")
		if b.get("interval") == nil {
			at = b.at("budget")
		}
		r.warnf(at, "One attempt", "The budget is %s and the interval %s, so there is only one attempt. Make the interval "+
			"shorter.", g.Budget, g.Interval)
	case g.Enforce == Warn && (len(g.OnHeld) > 0 || b.get("on_timeout") != nil && g.OnTimeout == Hold):
		at := b.at("on_held")
		if b.get("on_held") == nil {
			at = b.at("on_timeout")
		}
		r.warnf(at, "Holds nothing", "With enforce = \"warn\" the gate only reports, and kubelet starts in any case: on_timeout = \"hold\" and "+
			"on_held have no held kubelet to wait for. Remove enforce once the policy is right for your nodes.")
	case len(g.OnHeld) > 0 && strings.Contains(g.OnHeld[0], " "):
		r.warnf(b.at("on_held"), "One path", "%q is read as the path of a program. Write each argument as a separate element.", g.OnHeld[0])
	}
}

// checkParameter reports a parameter that no kernel has, and values that the parameter cannot take.
func (r *reader) checkParameter(key Key, name hcl.Range, values []string, at hcl.Range) {
	if r.catalogue == nil || key == "" {
		return
	}
	numbers, known := r.catalogue.Parameter(string(key))
	if !known && r.names && !r.isAllowed(string(key)) {
		r.warnf(name, "Unknown parameter", "%s: %s%s", key, noKernel, r.parameterInstead(key, values))
	}
	if key == "net/core/flow_limit_cpu_bitmap" || key == "net/core/rps_default_mask" {
		return // a mask of CPUs, in groups of hexadecimal digits: a machine with few CPUs prints what looks like a number
	}
	for _, v := range values {
		r.checkOctal(key, v, at)
		fields := strings.Fields(v)
		switch i := slices.IndexFunc(fields, notNumber); {
		case numbers == nil || len(fields) == 0: // the kernel's empty list
		case i >= 0:
			r.errorf(at, "Wrong type", "%s takes numbers; %q is not a number.%s", key, fields[i],
				cmp.Or(suggestNumbers(v, numbers), suggestNumber(fields[i])))
		case !slices.Contains(numbers, len(fields)):
			r.errorf(at, "Wrong length", "%s takes %s, as the kernel prints it; this value has %d and would never "+
				"pass.", key, countOf(numbers), len(fields))
		}
	}
}

// parameterInstead returns the line to write instead of a parameter that no kernel has, or its nearest names.
func (r *reader) parameterInstead(key Key, values []string) string {
	var all []string
	for _, p := range r.catalogue.Parameters {
		all = append(all, Key(p).String())
	}
	instead := Nearest(key.String(), all)
	_, dotted := r.catalogue.Parameter(string(key.dotted()))
	switch word := key.String(); {
	case dotted:
		instead = fmt.Sprintf(" For a link whose name has dots, slashes separate. Write %q.", string(key.dotted()))
	case strings.Contains(word, "hugepage"):
		instead = " Transparent huge pages are in /sys. Write: " + lineOf("sysfs")
	case slices.Contains(r.catalogue.Modules, strings.Split(word, ".")[0]) && strings.Count(word, ".") == 1:
		module, option, _ := strings.Cut(word, ".")
		instead = fmt.Sprintf(" An option is its module's. Write: module %q { options = { %s = %s } }", module, option,
			literal(cmp.Or(strings.Join(values, " "), "VALUE")))
	case strings.Contains(word, "swap") && instead == "":
		instead = " Swap is a check. Write: " + lineOf("check")
	}
	return cmp.Or(afterRemoval(string(key)), instead)
}

// afterRemoval returns the remedy for a name that Linux no longer has, or "".
func afterRemoval(name string) string {
	for _, rule := range kernels.Rules("gone") {
		if is, _ := path.Match(rule.Words[0], name); is {
			return " " + rule.Effect
		}
	}
	return ""
}

// checkOctal reports a number with a leading zero: the kernel and nodegate read 0600 as 384, and its author may have meant either.
func (r *reader) checkOctal(name Key, value string, at hcl.Range) {
	for _, word := range strings.Fields(value) {
		digits := strings.TrimLeft(word, "0")
		if n, err := strconv.ParseInt(word, 8, 64); err == nil && word[0] == '0' && digits != "" {
			instead := "."
			fit := slices.DeleteFunc(slices.Compact([]string{strconv.FormatInt(n, 10), digits}), func(write string) bool {
				return slices.ContainsFunc(r.catalogue.Domains(string(name)), func(d kernels.Domain) bool {
					instead = acceptedBy(d)
					return d.Answer(strings.Replace(value, word, write, 1)) == kernels.Refused
				})
			})
			if len(fit) > 0 {
				instead = ". Write " + strings.Join(fit, " or ") + "."
			}
			r.errorf(at, "Leading zero", "%s: %q has a leading zero, so the kernel may read it as an octal number%s", name, word, instead)
		}
	}
}

// checkBounds reports min or max for a parameter that is not a single number.
func (r *reader) checkBounds(key Key, at hcl.Range) {
	if r.catalogue == nil {
		return
	}
	switch numbers, known := r.catalogue.Parameter(string(key)); {
	case len(numbers) > 0 && !slices.Contains(numbers, 1):
		r.errorf(at, "Wrong length", "%s has %s, but min and max compare only one. Give it a value with all of them.", key, countOf(numbers))
	case r.names && known && numbers == nil && !key.IsGlob():
		r.warnf(at, "Wrong type", "%s is not a number on the recorded kernels, so min and max would never pass. Give it a value or one_of.", key)
	}
}

// takesNumbers reports whether the recorded kernels have only numbers in a parameter.
func (r *reader) takesNumbers(key Key) bool {
	if r.catalogue == nil {
		return false
	}
	numbers, _ := r.catalogue.Parameter(string(key))
	return numbers != nil
}

func countOf(numbers []int) string {
	if s := strings.Join(strings.Fields(strings.Trim(fmt.Sprint(numbers), "[]")), " or "); s != "1" {
		return s + " numbers"
	}
	return "1 number"
}

func notNumber(s string) bool {
	_, err := strconv.ParseInt(s, 0, 64)
	_, unsigned := strconv.ParseUint(s, 0, 64)
	return err != nil && unsigned != nil || !kernels.IsNumber(s)
}

// suggestNumbers suggests how to write several numbers that other marks than spaces separate.
func suggestNumbers(value string, numbers []int) string {
	value, _, _ = strings.Cut(value, "#")
	words := strings.FieldsFunc(value, func(c rune) bool { return strings.ContainsRune(" ,;:-'\"", c) })
	if !slices.Contains(numbers, len(words)) || slices.ContainsFunc(words, notNumber) {
		return ""
	}
	return fmt.Sprintf(" Write %s.", literal(strings.Join(words, " ")))
}

func suggestNumber(word string) string {
	if number := strings.ReplaceAll(strings.TrimPrefix(strings.TrimSuffix(word, "%"), "+"), "_", ""); number != word && !notNumber(number) {
		return " Write " + number + "."
	}
	const low, high = "min = NUMBER instead of value", "max = NUMBER instead of value"
	if write := map[string]string{">": low, ">=": low, "<": high, "<=": high, "yes": "1",
		"true": "1", "on": "1", "enabled": "1", "no": "0", "false": "0", "off": "0",
		"disabled": "0"}[strings.ToLower(word)]; write != "" {
		return " Write " + write + "."
	}
	return bytesOf(word, ifCounted)
}

// Nearest returns " Did you mean ...?" with up to three known names: the nearest ones, and names
// with the same last component, usually in another directory. It returns "" if no name is near.
func Nearest(s string, known []string) string {
	last := func(s string) string { return s[strings.LastIndexByte(s, '.')+1:] }
	type candidate struct {
		name     string
		distance int
	}
	var near []candidate
	s = strings.ToLower(s)
	const far = 4
	// Words whose lengths differ by more than far need no comparison; most do.
	distance := func(a, b string) int {
		if len(a) > len(b)+far || len(b) > len(a)+far {
			return far
		}
		return levenshtein.Distance(a, b, nil)
	}
	for _, k := range known {
		switch d := distance(s, k); {
		case d < far && d < len(last(k))/2+1:
			near = append(near, candidate{k, d})
		case last(s) != s && len(last(s)) > 3 && distance(last(s), last(k)) < 2:
			near = append(near, candidate{k, 10 + levenshtein.Distance(s, k, nil)})
		}
	}
	sorted.By(near, func(a, b candidate) int { return a.distance - b.distance })
	var names []string
	for _, c := range near {
		if quoted := fmt.Sprintf("%q", c.name); len(names) < 3 && !slices.Contains(names, quoted) {
			names = append(names, quoted)
		}
	}
	if names == nil {
		return ""
	}
	return " Did you mean " + strings.Join(names, " or ") + "?"
}

// didYouMean returns " Did you mean ...?" with the known word nearest to s, or "" if no word is
// near. hcl uses the same library for the same sentence.
func didYouMean(s string, known []string) string {
	best, distance := "", 4
	for _, k := range known {
		d := levenshtein.Distance(s, k, nil)
		if len(s) > 3 && len(k) > len(s) { // or the word that begins like s
			d = min(d, 2+levenshtein.Distance(s, k[:len(s)+1], nil))
		}
		if d < distance && d < len(k)/2+1 {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" Did you mean %q?", best)
}

// checkWriteOnly reports a parameter that can only be written. Lists of settings for sysctl.conf sometimes contain one. Its
// value cannot be read, so the requirement would be unknown and never pass.
func (r *reader) checkWriteOnly(b block, key Key) {
	if r.catalogue == nil {
		return
	}
	for _, name := range []string{"net/ipv4/route/flush", "net/ipv6/route/flush", "vm/compact_memory", "vm/drop_caches"} {
		if is, _ := path.Match(string(key), name); is {
			r.errorf(b.Range, "Cannot be read", "%s triggers an action in the kernel and stores no value: it can only be written, so it would "+
				"never pass. Remove it.", Key(name))
			return
		}
	}
	for _, name := range []string{"net/ipv4/tcp_fastopen_key", "net/ipv6/conf/*/stable_secret"} {
		if is, _ := path.Match(name, string(key)); is {
			r.errorf(b.Range, "A secret", "%s is a key that only root may read: nodegate shows no such value, so it could not prove it. Write it "+
				"with a unit of its own.", key)
			return
		}
	}
}

// pairs returns the rules of a kind that name two parameters.
func pairs(kind string) (all [][2]Key) {
	for _, rule := range kernels.Rules(kind) {
		all = append(all, [2]Key{Key(rule.Words[0]), Key(rule.Words[1])})
	}
	return all
}

// Means reports whether two names are of one parameter.
func (k Key) Means(o Key) bool {
	return k == o || slices.ContainsFunc(pairs("alias"), func(names [2]Key) bool { return k == names[0] && o == names[1] })
}

// checkAliases reports two values for one parameter that has two names.
func (p *Policy) checkAliases(r *reader) {
	for _, names := range pairs("alias") {
		one := p.findSysctl(names[0])
		for _, s := range p.Sysctls {
			other, _ := path.Match(string(s.Key), string(names[1]))
			if one == nil || !other || !s.Applies() || r.catalogue == nil {
				continue
			}
			if _, ok := one.intersect(s); !ok {
				r.errorf(s.Range, "Contradiction", "%s must be %s here, but %s, which is the same parameter as %s, must be %s at %s. Remove one "+
					"of the two.", s.Key, s.Want(), names[0], names[1], one.Want(), place(one.Range))
			}
		}
	}
}

// checkExclusive reports values for both parameters of a pair in which the kernel sets one to 0 when the other is written.
// The gate would write the two in turn until its budget is used up.
func (p *Policy) checkExclusive(r *reader) {
	for _, names := range pairs("exclusive") {
		one, other := p.findSysctl(names[0]), p.findSysctl(names[1])
		if one != nil && other != nil && !one.Allows("0") && !other.Allows("0") && r.catalogue != nil {
			r.errorf(other.Range, "Contradiction", "%s must be %s here and %s must be %s at %s, but the kernel sets one to 0 when the other "+
				"is written. Remove one of the two.", other.Key, other.Want(), one.Key, one.Want(), place(one.Range))
		}
	}
}

// findSysctl returns the requirement for a parameter that applies, or nil.
func (p *Policy) findSysctl(key Key) *Sysctl {
	if i := slices.IndexFunc(p.Sysctls, func(s Sysctl) bool { return s.Key == key && s.Applies() }); i >= 0 {
		return &p.Sysctls[i]
	}
	return nil
}
