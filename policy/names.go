package policy

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/agext/levenshtein"
	"github.com/hashicorp/hcl/v2"
)

// The catalogue is nil but for Lint: the boot path does not read it.

func (r *reader) warnf(at hcl.Range, summary, detail string, args ...any) {
	r.warnings = append(r.warnings, &hcl.Diagnostic{
		Severity: hcl.DiagWarning, Summary: summary, Detail: fmt.Sprintf(detail, args...), Subject: at.Ptr(),
	})
}

// noKernel ends the sentence about a name that the catalogue lacks.
const noKernel = "no kernel of Debian 11, 12 or 13 has it."

func (r *reader) checkModule(b block) {
	if name := strings.ReplaceAll(b.Name, "-", "_"); r.names && !slices.Contains(r.catalogue.Modules, name) {
		r.warnf(b.Range, "Unknown module", "%s: %s%s", b.Name, noKernel, Nearest(name, r.catalogue.Modules))
	}
}

func (r *reader) checkKind(kind string, at hcl.Range) {
	if r.names && kind != "" && !slices.Contains(r.catalogue.Kinds, kind) {
		r.warnf(at, "Unknown kind", "%q is no kind of link: %s%s", kind, noKernel, Nearest(kind, r.catalogue.Kinds))
	}
}

// checkMatch reports a name or a driver that no link has.
func (r *reader) checkMatch(m Match, b block) {
	if r.catalogue != nil && (strings.ContainsAny(m.Name, " \t/") || len(m.Name) > 15 && !strings.ContainsAny(m.Name, "*?[\\")) {
		r.errorf(b.at("name"), "Not a name of a link",
			"%q matches no link: a name has at most 15 bytes, none of them white space or a slash.", m.Name)
	}
	if r.names && strings.ContainsAny(m.Name, "|^${}()+") {
		r.warnf(b.at("name"), "No regular expression",
			"name is a glob: * is any text, ? one character, [01] one of these. %q matches no link.", m.Name)
	}
	module := strings.ReplaceAll(m.Driver, "-", "_")
	if r.names && module != "" && !strings.Contains(module, " ") && !slices.Contains(r.catalogue.Modules, module) {
		r.warnf(b.at("driver"), "Unknown driver",
			"%q: %s `ethtool -i LINK` prints a link's.%s", m.Driver, noKernel, Nearest(module, r.catalogue.Modules))
	}
}

// checkGate reports a gate that would wait for itself, or that is not what it looks like.
func (r *reader) checkGate(g Gate, b block) {
	runtimes := []string{"containerd.service", "crio.service", "cri-o.service", "docker.service", "cri-docker.service"}
	switch {
	case strings.HasPrefix(g.Unit, "nodegate"):
		r.errorf(b.at("unit"), "Gate of its own",
			"%s is nodegate's own unit, and would wait for itself. Name the unit that runs kubelet.", g.Unit)
	case slices.Contains(runtimes, g.Unit):
		r.warnf(b.at("unit"), "Not kubelet's unit", "%s is the container runtime: it would wait for kubelet.runtime, which waits for it. "+
			"Name the unit that runs kubelet.", g.Unit)
	case g.Interval >= g.Budget:
		at := b.at("interval")
		if b.get("interval") == nil {
			at = b.at("budget")
		}
		r.warnf(at, "One attempt", "The budget is %s, and the next attempt would come after %s: there is only one.", g.Budget, g.Interval)
	case len(g.OnHeld) > 0 && strings.Contains(g.OnHeld[0], " "):
		r.warnf(b.at("on_held"), "One path", "%q is taken for the path of a program. Write each argument as an element of its own.", g.OnHeld[0])
	}
}

// checkParameter reports a parameter that no kernel has, and values that it cannot have.
func (r *reader) checkParameter(key Key, name hcl.Range, values []string, at hcl.Range) {
	if r.catalogue == nil || key == "" {
		return
	}
	numbers, known := r.catalogue.Parameter(string(key))
	if !known && r.names {
		var all []string
		for _, p := range r.catalogue.Parameters {
			all = append(all, Key(p).String())
		}
		r.warnf(name, "Unknown parameter", "%s: %s%s", key, noKernel, Nearest(key.String(), all))
	}
	for _, v := range values {
		fields := strings.Fields(v)
		switch i := slices.IndexFunc(fields, notNumber); {
		case numbers == nil:
		case i >= 0:
			r.errorf(at, "Wrong type", "%s takes numbers; %q is none.%s", key, fields[i], suggestNumber(fields[i]))
		case !slices.Contains(numbers, len(fields)):
			r.errorf(at, "Wrong length", "%s takes %s, as the kernel prints it; this has %d: it would never pass.", key, countOf(numbers), len(fields))
		}
	}
}

// checkBounds reports min and max of a parameter that is not one number.
func (r *reader) checkBounds(key Key, at hcl.Range) {
	if r.catalogue == nil {
		return
	}
	switch numbers, known := r.catalogue.Parameter(string(key)); {
	case len(numbers) > 0 && !slices.Contains(numbers, 1):
		r.errorf(at, "Wrong length", "%s has %s; min and max are for one. Give it a value with all of them.", key, countOf(numbers))
	case r.names && known && numbers == nil && !key.IsGlob():
		r.warnf(at, "Wrong type", "%s read as no number on the recorded kernels; then min and max never pass. Give it a value or one_of.", key)
	}
}

func countOf(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(n)
	}
	if s := strings.Join(words, " or "); s != "1" {
		return s + " numbers"
	}
	return "1 number"
}

func notNumber(s string) bool {
	_, err := strconv.ParseInt(s, 0, 64)
	_, unsigned := strconv.ParseUint(s, 0, 64)
	return err != nil && unsigned != nil
}

func suggestNumber(word string) string {
	switch strings.ToLower(word) {
	case "yes", "true", "on", "enabled":
		return " Write 1."
	case "no", "false", "off", "disabled":
		return " Write 0."
	}
	return ""
}

// Nearest returns " Did you mean ...?" for up to three of the known names, the nearest ones
// and those that end as s does, most often below another folder; "" where none is near.
func Nearest(s string, known []string) string {
	last := func(s string) string { return s[strings.LastIndexByte(s, '.')+1:] }
	type candidate struct {
		name     string
		distance int
	}
	var near []candidate
	s = strings.ToLower(s)
	const far = 4
	// Words of other lengths are never near: most are not compared.
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
	slices.SortStableFunc(near, func(a, b candidate) int { return a.distance - b.distance })
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

// didYouMean returns " Did you mean ...?" for the known word nearest to s, or ""
// where none is near. hcl uses the same library for the same sentence.
func didYouMean(s string, known []string) string {
	best, distance := "", 4
	for _, k := range known {
		if d := levenshtein.Distance(s, k, nil); d < distance && d < len(k)/2+1 {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" Did you mean %q?", best)
}

// writeOnly reports a parameter that can only be written, as a list of settings for sysctl.conf may have one: what it is cannot be
// told, and unknown never passes.
func (r *reader) checkWriteOnly(b block, key Key) {
	if r.catalogue == nil {
		return
	}
	for _, name := range []string{"net/ipv4/route/flush", "net/ipv6/route/flush", "vm/compact_memory", "vm/drop_caches"} {
		if is, _ := path.Match(string(key), name); is {
			r.errorf(b.Range, "Cannot be read", "%s is an order to the kernel and no setting: it can only be written, and would never pass. "+
				"Take it out.", Key(name))
			return
		}
	}
}

// twins reports two values for what is one parameter with two names.
func (p *Policy) checkAliases(r *reader) {
	for _, names := range [][2]Key{
		{"net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding"},
		{"net/netfilter/nf_conntrack_max", "net/nf_conntrack_max"},
	} {
		one := p.findSysctl(names[0])
		for _, s := range p.Sysctls {
			other, _ := path.Match(string(s.Key), string(names[1]))
			if one == nil || !other || !s.Applies() || r.catalogue == nil {
				continue
			}
			if _, ok := one.intersect(s); !ok {
				r.errorf(s.Range, "Contradiction", "%s is asked to be %s, and %s, which is the same as %s, to be %s at %s.",
					s.Key, s.Want(), names[0], names[1], one.Want(), place(one.Range))
			}
		}
	}
}

// pairs reports values for both of two parameters of which the kernel makes one 0 when the other is written: the gate would write the
// one and the other until its budget ends.
func (p *Policy) checkExclusive(r *reader) {
	for _, names := range [][2]Key{
		{"vm/dirty_bytes", "vm/dirty_ratio"},
		{"vm/dirty_background_bytes", "vm/dirty_background_ratio"},
		{"vm/overcommit_kbytes", "vm/overcommit_ratio"},
	} {
		one, other := p.findSysctl(names[0]), p.findSysctl(names[1])
		if one != nil && other != nil && !one.Allows("0") && !other.Allows("0") && r.catalogue != nil {
			r.errorf(other.Range, "Contradiction", "%s is asked to be %s here, and %s to be %s at %s: the kernel makes the one 0 when the other "+
				"is written. Remove one of the two.", other.Key, other.Want(), one.Key, one.Want(), place(one.Range))
		}
	}
}

// asked returns what applies of a parameter, nil where nothing does.
func (p *Policy) findSysctl(key Key) *Sysctl {
	if i := slices.IndexFunc(p.Sysctls, func(s Sysctl) bool { return s.Key == key && s.Applies() }); i >= 0 {
		return &p.Sysctls[i]
	}
	return nil
}
