package lint

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"nodegate/policy"
	"nodegate/policy/kernels"
)

// mistaken returns why a value that the kernel accepts is harmful, or "". floor: the value is a lower bound, which lowers nothing.
func mistaken(key policy.Key, value string, floor bool) string {
	words := strings.Fields(value)
	switch {
	case key == "kernel/core_pattern" && strings.HasPrefix(value, "|") && !strings.HasPrefix(value, "|/"):
		return "the kernel runs no program without an absolute path, so no core is stored; write |/PATH"
	case key == "net/ipv4/ip_local_port_range" && len(words) == 2:
		first, _ := strconv.Atoi(words[0])
		if last, err := strconv.Atoi(words[1]); err == nil && last-first < 1000 {
			return fmt.Sprintf("%d local ports for all connections of the node are soon used up", last-first+1)
		}
	}
	for _, rule := range kernels.Rules("range") {
		if about, _ := path.Match(rule.Words[0], string(key)); !about {
			continue
		}
		from, to, _ := strings.Cut(rule.Words[1], "..")
		low, _ := strconv.ParseInt(from, 10, 64)
		high, err := strconv.ParseInt(to, 10, 64)
		usual := from + " to " + to
		switch {
		case err != nil:
			high, usual = math.MaxInt64, "at least "+from
		case low == high:
			usual = from
		}
		outside := func(word string) bool {
			n, err := strconv.ParseInt(word, 10, 64)
			return err == nil && (n < low && !floor || n > high)
		}
		if slices.ContainsFunc(words, outside) {
			return rule.Effect + "; usual is " + strings.Join(append([]string{usual}, rule.Words[2:]...), " ")
		}
	}
	return ""
}

// checkHarm reports values that harm a node of a cluster together, or unless another requirement mends that.
func (r *reading) checkHarm(p *policy.Policy) {
	var reported []string
	p = p.Applying()
	for _, rule := range kernels.Rules("harm") {
		bad := having(p, rule.Words[0])
		if bad == nil || r.isAllowed(string(bad.key)) || slices.Contains(reported, bad.what) {
			continue
		}
		holds, beside := true, ""
		for i := 1; i < len(rule.Words); i += 2 {
			other := having(p, rule.Words[i+1])
			holds = holds && (other != nil) == (rule.Words[i] == "with")
			if other != nil {
				beside += fmt.Sprintf(" with %s (%s)", other.what, policy.Place(other.Range))
			}
		}
		if holds {
			reported = append(reported, bad.what)
			r.warnf(bad.Range, "Harmful value", "%s%s: %s.%s", bad.what, beside, rule.Effect, ifWanted("Harmful value", bad.key))
		}
	}
}

// uses reports whether the policy uses a built-in one.
func uses(p *policy.Policy, name string) bool {
	return slices.Contains(p.Files, "builtin:"+name+".hcl")
}

// finding is a requirement that a term of a rule describes.
type finding struct {
	policy.Metadata
	key  policy.Key
	what string
}

// having returns the first applying requirement that a term of a rule describes, KEY=BAD/GOOD, or nil.
func having(p *policy.Policy, term string) *finding {
	key, values, _ := strings.Cut(term, "=")
	if key == "use" {
		if uses(p, values) {
			return &finding{}
		}
		return nil
	}
	bad, good, either := strings.Cut(values, "/")
	is := func(s policy.Sysctl) bool { return s.Allows(bad) && (!either || !s.Allows(good)) }
	for _, s := range p.Sysctls {
		about, _ := path.Match(key, string(s.Key))
		if covers, _ := path.Match(string(s.Key), key); (about || covers) && is(s) {
			return &finding{s.Metadata, s.Key, s.Key.String() + " = " + s.Want()}
		}
	}
	for _, l := range p.Links {
		for _, s := range l.Of(policy.LinkSysctls) {
			if about, _ := path.Match(key, s.Name); about && is(policy.Sysctl{Value: s.Value}) {
				return &finding{l.Metadata, policy.Key(s.Name), s.Label() + " = " + s.Value}
			}
		}
	}
	return nil
}
