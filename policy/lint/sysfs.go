package lint

import (
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"nodegate/policy"
	"nodegate/policy/kernels"
)

// wordsOf returns the words that the kernel accepts for an attribute, or nil if they depend on the device or are not words.
func wordsOf(k policy.Key) []string {
	for _, rule := range kernels.Rules("words") {
		if rule.Words[0] == below(k) {
			return rule.Words[1:]
		}
	}
	return nil
}

// checkWords reports a value that is not one of the words of an attribute.
func (r *reading) checkWords(s policy.Sysctl, b policy.Stanza) {
	words, at, values := wordsOf(s.Key), b.At("value"), []string{s.Value}
	if s.OneOf != nil {
		at, values = b.At("one_of"), s.OneOf
	}
	for i, v := range values {
		if i > 0 && s.Key == "/sys/devices/system/cpu/smt/control" && slices.Contains([]string{"notsupported", "notimplemented"}, v) {
			continue // read, never written
		}
		if words != nil && !slices.Contains(words, v) && s.Unknown == "" {
			r.errorf(at, "Wrong value", "%s takes %s, not %q.%s", s.Key, policy.Alternatives(words), v, policy.DidYouMean(v, words))
		}
	}
}

// valueAt returns the position of the required value.
func valueAt(b policy.Stanza) hcl.Range {
	for _, name := range []string{"value", "one_of", "min"} {
		if b.Get(name) != nil {
			return b.At(name)
		}
	}
	return b.At("max")
}

// checkAttribute reports a value that no kernel accepts for an attribute of /sys, and an attribute that not every node has.
func (r *reading) checkAttribute(s policy.Sysctl, b policy.Stanza) {
	below := below(s.Key)
	if r.names {
		r.checkAttributeName(below, b)
	}
	r.checkOneDevice(s, below, b)
	written := s.Target("") // the value that apply writes
	if s.Unknown != "" || written == "" {
		return
	}
	switch {
	case policy.InPattern("block/*/queue/scheduler", below):
		r.checkScheduler(written, b)
	case path.Base(below) == "scaling_governor":
		r.checkWord(written, b, "CPU frequency governor", "conservative", "ondemand", "performance", "powersave", "schedutil", "userspace")
	default:
		r.checkOctal(s.Key, written, valueAt(b))
	}
}

// checkScheduler reports an I/O scheduler that no supported kernel has (block/elevator.c; the first three went with Linux 5.0).
func (r *reading) checkScheduler(name string, b policy.Stanza) {
	old := map[string]string{"noop": "none", "deadline": "mq-deadline", "cfq": "bfq"}
	known := []string{"none", "mq-deadline", "kyber", "bfq"}
	switch {
	case old[name] != "" && r.fact == nil && b.Get("when") == nil: // with facts, the condition was evaluated apart
		r.errorf(valueAt(b), "Wrong value", "Linux 5.0 removed the I/O scheduler %s. Write %q, or when = !version_at_least(kernel.version, "+
			"\"5.0\").", name, old[name])
	case old[name] == "":
		r.checkWord(name, b, "I/O scheduler", known...)
	}
}

// checkWord warns about a word that no supported kernel has for an attribute.
func (r *reading) checkWord(word string, b policy.Stanza, what string, known ...string) {
	if r.names && !r.isAllowed(word) && !slices.Contains(known, word) {
		r.warnf(valueAt(b), "Unknown "+what, "Linux has %s, not %q.%s", policy.Alternatives(known), word, policy.DidYouMean(word, known))
	}
}

// checkAttributeName warns about a name that a directory of /sys has on no kernel.
func (r *reading) checkAttributeName(below string, b policy.Stanza) {
	parts := strings.Split(below, "/")
	for _, rule := range kernels.Rules("attribute") {
		depth := strings.Count(rule.Words[0], "/") + 1
		if len(parts) <= depth || !policy.InPattern(rule.Words[0], strings.Join(parts[:depth], "/")) || r.isAllowed(below) {
			continue
		}
		if !slices.ContainsFunc(rule.Words[1:], func(name string) bool { return globsMeet(name, parts[depth]) }) {
			r.warnf(b.Range, "Unknown attribute", "/sys/%s: no supported kernel has %q there, so a node would be held.%s If yours has it, add: "+
				"lint { allow = [\"unknown-attribute:%[1]s\"] }", below, parts[depth], policy.DidYouMean(parts[depth], rule.Words[1:]))
			return
		}
	}
}

// checkOneDevice warns about an attribute of one device, which other nodes may not have.
func (r *reading) checkOneDevice(s policy.Sysctl, below string, b policy.Stanza) {
	if s.Severity != policy.Block || r.fact != nil || b.Get("when") != nil {
		return
	}
	parts := strings.Split(below, "/")
	at := slices.IndexFunc([]string{"block/*/**", "class/net/*/**"}, func(p string) bool { return policy.InPattern(p, below) })
	if at >= 0 && !policy.Key(parts[at+1]).IsGlob() && parts[at+1] != "lo" {
		parts[at+1] = "*"
		r.warnf(b.Range, "Only with this device", "%s exists only while the node has that device: a node without it is held. For all devices "+
			"write %q, or add a condition with when.", s.Key, strings.Join(parts, "/"))
	}
	for _, rule := range kernels.Rules("hardware") {
		if policy.InPattern(rule.Words[0], below) && !s.Key.IsGlob() {
			r.warnf(b.Range, "Only with this device", "%s exists only on %s: any other node is held. Write severity = \"warn\", or a glob, which "+
				"may match nothing.", s.Key, rule.Effect)
			return
		}
	}
}

// below returns the path of an attribute below /sys.
func below(k policy.Key) string { return strings.TrimPrefix(string(k), "/sys/") }
