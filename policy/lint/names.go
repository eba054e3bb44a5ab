package lint

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"

	"nodegate/policy"
	"nodegate/policy/kernels"
)

// neverInLink reports whether no link's name can have the character: white space, slashes and colons (dev_valid_name of
// net/core/dev.c). The kernel accepts control characters, but no program gives a link such a name.
func neverInLink(c rune) bool {
	return c == '/' || c == ':' || unicode.IsSpace(c) || !unicode.IsGraphic(c)
}

// globFor returns the glob for a simple regular expression, or "".
func globFor(expression string) string {
	m := regexp.MustCompile(`^/?\^?([\w.-]*\w)(?:\.[*+]|\[0-9\][*+]?|\\d[*+]?)?\$?/?$`).FindStringSubmatch(expression)
	if m == nil || m[1] == expression {
		return ""
	}
	return fmt.Sprintf(" Write a glob: name = %q", m[1]+"*")
}

// checkCharacters returns false if it reports a name, kind or driver that no link can have because of one of its characters.
// It checks only in Lint: a node keeps accepting its installed policy.
func (r *reading) checkCharacters(m policy.Match, b policy.Stanza) bool {
	before := len(r.diags)
	if i := strings.IndexFunc(m.Name, neverInLink); i >= 0 {
		r.errorf(b.At("name"), "Not a name of a link", "%q matches no link: a name has no white space, slashes, colons or invisible "+
			"characters.%s", m.Name, policy.OddCharacter(m.Name[i:])+globFor(m.Name))
	}
	for _, field := range []struct{ name, value string }{{"kind", m.Kind}, {"driver", m.Driver}} {
		odd := func(c rune) bool { return c > 0x7e || c < ' ' || c == ' ' && field.name == "kind" } // "802.1Q VLAN Support" is a driver
		if i := strings.IndexFunc(field.value, odd); i >= 0 {
			r.errorf(b.At(field.name), "Not a "+field.name, "%q is the %s of no link: write it in printable ASCII.%s", field.value, field.name,
				policy.OddCharacter(field.value[i:]))
		}
	}
	return len(r.diags) == before
}

// withDots returns the key with the components that may be a link's name, in the place of one, as one component.
func withDots(k policy.Key) policy.Key {
	parts := strings.Split(string(k), "/")
	if last := len(parts) - 1; last > 4 && (parts[2] == "conf" || parts[2] == "neigh") {
		return policy.Key(strings.Join(append(parts[:3], strings.Join(parts[3:last], "."), parts[last]), "/"))
	}
	return k
}

// noKernel ends the message about a name that is not in the catalogue.
const noKernel = "no kernel of Debian 11, 12 or 13 has it."

func (r *reading) checkModuleName(b policy.Stanza) {
	if name := strings.ReplaceAll(b.Name, "-", "_"); r.names && !r.isAllowed(name) && !slices.Contains(r.catalogue.Modules, name) {
		r.warnf(b.Range, "Unknown module", "%s: %s%s", b.Name, noKernel, cmp.Or(afterRemoval(name), policy.Nearest(name, r.catalogue.Modules)))
	}
}

func (r *reading) checkKind(kind string, at hcl.Range) {
	if r.names && kind != "" && !r.isAllowed(kind) && !slices.Contains(r.catalogue.Kinds, kind) {
		r.warnf(at, "Unknown kind", "%q is not a kind of link: %s%s", kind, noKernel, policy.Nearest(kind, r.catalogue.Kinds))
	}
}

// checkMatch reports a name, kind or driver that no link can have.
func (r *reading) checkMatch(m policy.Match, b policy.Stanza) {
	if !r.checkCharacters(m, b) {
		return
	}
	r.checkKind(m.Kind, b.At("kind"))
	if len(m.Name) > 15 && !strings.ContainsAny(m.Name, "*?[\\") {
		r.errorf(b.At("name"), "Not a name of a link", "%q matches no link: a name has at most 15 bytes.", m.Name)
	}
	if r.names && strings.ContainsAny(m.Name, "|^${}()+") {
		r.warnf(b.At("name"), "Regular expression",
			"name is a glob: * matches any string, ? one character, [01] one of these characters. %q matches no link.%s", m.Name, globFor(m.Name))
	}
	module := strings.ReplaceAll(m.Driver, "-", "_")
	if r.names && module != "" && !r.isAllowed(module) && !strings.Contains(module, " ") && !slices.Contains(r.catalogue.Modules, module) {
		r.warnf(b.At("driver"), "Unknown driver",
			"%q: %s `ethtool -i LINK` prints the driver of a link.%s", m.Driver, noKernel, policy.Nearest(module, r.catalogue.Modules))
	}
}

// checkGate reports a gate that would wait for itself, and settings that do not work as they seem to.
func (r *reading) checkGate(g policy.Gate, b policy.Stanza) {
	runtimes := []string{"containerd.service", "crio.service", "cri-o.service", "docker.service", "cri-docker.service"}
	switch {
	case g.Unit[0] == '@':
		r.errorf(b.At("unit"), "Not a service unit", "%q is the name of no unit: systemd wants a name before @.", g.Unit)
	case strings.HasSuffix(g.Unit, "@.service"):
		r.errorf(b.At("unit"), "Not a service unit", "%q is a template, which systemd never starts. Name an instance, for example %q.", g.Unit,
			strings.Replace(g.Unit, "@.", "@1.", 1))
	case strings.HasPrefix(g.Unit, "nodegate"):
		r.errorf(b.At("unit"), "Gate waits for itself",
			"%s is one of nodegate's own units and would wait for itself. Name the unit that runs kubelet.", g.Unit)
	case slices.Contains(runtimes, g.Unit):
		r.warnf(b.At("unit"), "Not kubelet's unit", "%s is the container runtime: it would wait for the check kubelet.runtime, which waits for "+
			"it. Name the unit that runs kubelet.", g.Unit)
	case g.Interval >= g.Budget:
		at := b.At("interval")
		if b.Get("interval") == nil {
			at = b.At("budget")
		}
		r.warnf(at, "One attempt", "The budget is %s and the interval %s, so there is only one attempt. Make the interval "+
			"shorter.", g.Budget, g.Interval)
	case g.Enforce == policy.Warn && (len(g.OnHeld) > 0 || b.Get("on_timeout") != nil && g.OnTimeout == policy.Hold):
		at := b.At("on_held")
		if b.Get("on_held") == nil {
			at = b.At("on_timeout")
		}
		r.warnf(at, "Holds nothing", "With enforce = \"warn\" the gate only reports, and kubelet starts in any case: on_timeout = \"hold\" and "+
			"on_held have no held kubelet to wait for. Remove enforce once the policy is right for your nodes.")
	case len(g.OnHeld) > 0 && strings.Contains(g.OnHeld[0], " "):
		r.warnf(b.At("on_held"), "One path", "%q is read as the path of a program. Write each argument as a separate element.", g.OnHeld[0])
	}
}

// checkParameterName reports a parameter that no kernel has. The value is for the remedy.
func (r *reading) checkParameterName(key policy.Key, at hcl.Range, value string) {
	if _, known := r.catalogue.Parameter(string(key)); !known && r.names && !r.isAllowed(string(key)) {
		r.warnf(at, "Unknown parameter", "%s: %s%s", key, noKernel, r.parameterInstead(key, value))
	}
}

// checkValues reports values that a parameter cannot take.
func (r *reading) checkValues(key policy.Key, values []string, at hcl.Range) {
	numbers, _ := r.catalogue.Parameter(string(key))
	if key == "net/core/flow_limit_cpu_bitmap" || key == "net/core/rps_default_mask" {
		return // a mask of CPUs, in groups of hexadecimal digits: a machine with few CPUs prints what looks like a number
	}
	for _, v := range values {
		r.checkOctal(key, v, at)
		fields := strings.Fields(v)
		switch i := slices.IndexFunc(fields, policy.NotNumber); {
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
func (r *reading) parameterInstead(key policy.Key, value string) string {
	var all []string
	for _, p := range r.catalogue.Parameters {
		all = append(all, policy.Key(p).String())
	}
	instead := policy.Nearest(key.String(), all)
	_, dotted := r.catalogue.Parameter(string(withDots(key)))
	switch word := key.String(); {
	case dotted:
		instead = fmt.Sprintf(" For a link whose name has dots, slashes separate. Write %q.", string(withDots(key)))
	case strings.Contains(word, "hugepage"):
		instead = " Transparent huge pages are in /sys. Write: " + policy.LineOf("sysfs")
	case slices.Contains(r.catalogue.Modules, strings.Split(word, ".")[0]) && strings.Count(word, ".") == 1:
		module, option, _ := strings.Cut(word, ".")
		instead = fmt.Sprintf(" An option is its module's. Write: module %q { options = { %s = %s } }", module, option,
			policy.Literal(cmp.Or(value, "VALUE")))
	case strings.Contains(word, "swap") && instead == "":
		instead = " Swap is a check. Write: " + policy.LineOf("check")
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
func (r *reading) checkOctal(name policy.Key, value string, at hcl.Range) {
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
func (r *reading) checkBounds(key policy.Key, at hcl.Range) {
	switch numbers, known := r.catalogue.Parameter(string(key)); {
	case len(numbers) > 0 && !slices.Contains(numbers, 1):
		r.errorf(at, "Wrong length", "%s has %s, but min and max compare only one. Give it a value with all of them.", key, countOf(numbers))
	case r.names && known && numbers == nil && !key.IsGlob():
		r.warnf(at, "Wrong type", "%s is not a number on the recorded kernels, so min and max would never pass. Give it a value or one_of.", key)
	}
}

func countOf(numbers []int) string {
	if s := strings.Join(strings.Fields(strings.Trim(fmt.Sprint(numbers), "[]")), " or "); s != "1" {
		return s + " numbers"
	}
	return "1 number"
}

// suggestNumbers suggests how to write several numbers that other marks than spaces separate.
func suggestNumbers(value string, numbers []int) string {
	value, _, _ = strings.Cut(value, "#")
	words := strings.FieldsFunc(value, func(c rune) bool { return strings.ContainsRune(" ,;:-'\"", c) })
	if !slices.Contains(numbers, len(words)) || slices.ContainsFunc(words, policy.NotNumber) {
		return ""
	}
	return fmt.Sprintf(" Write %s.", policy.Literal(strings.Join(words, " ")))
}

func suggestNumber(word string) string {
	number := strings.ReplaceAll(strings.TrimPrefix(strings.TrimSuffix(word, "%"), "+"), "_", "")
	if number != word && !policy.NotNumber(number) {
		return " Write " + number + "."
	}
	const low, high = "min = NUMBER instead of value", "max = NUMBER instead of value"
	if write := map[string]string{">": low, ">=": low, "<": high, "<=": high, "yes": "1",
		"true": "1", "on": "1", "enabled": "1", "no": "0", "false": "0", "off": "0",
		"disabled": "0"}[strings.ToLower(word)]; write != "" {
		return " Write " + write + "."
	}
	return policy.BytesOf(word, policy.IfCounted)
}

// checkWriteOnly reports a parameter that can only be written. Lists of settings for sysctl.conf sometimes contain one. Its
// value cannot be read, so the requirement would be unknown and never pass.
func (r *reading) checkWriteOnly(b policy.Stanza, key policy.Key) {
	for _, name := range []string{"net/ipv4/route/flush", "net/ipv6/route/flush", "vm/compact_memory", "vm/drop_caches"} {
		if is, _ := path.Match(string(key), name); is {
			r.errorf(b.Range, "Cannot be read", "%s triggers an action in the kernel and stores no value: it can only be written, so it would "+
				"never pass. Remove it.", policy.Key(name))
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

// checkPods warns if a block's reason is about Pods, and they do not have the parameter's value.
func (r *reading) checkPods(s policy.Sysctl, b policy.Stanza) {
	if b.IsBuiltin() || !strings.HasPrefix(string(s.Key), "net/") || s.Reason+s.Symptom == "" || !s.Key.IsOwnOfPods() {
		return
	}
	for name, text := range map[string]string{"reason": s.Reason, "symptom": s.Symptom} {
		pods := regexp.MustCompile(`(?i)\b(pods?|containers?)\b`).MatchString(text)
		if pods && !regexp.MustCompile(`(?i)host.?network`).MatchString(text) {
			r.warnf(b.At(name), "Not for Pods", "%s does not reach Pods (%s). If it is for programs of the machine, write that as the %s.", s.Key,
				policy.NotForPods, name)
		}
	}
}
