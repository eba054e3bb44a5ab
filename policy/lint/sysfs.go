package lint

import (
	"path"
	"regexp"
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

// checkAttribute reports a value that no kernel accepts for an attribute of /sys, and one that stops the node.
func (r *reading) checkAttribute(s policy.Sysctl, b policy.Stanza) {
	below := below(s.Key)
	if r.names {
		r.checkAttributeName(below, b)
	}
	r.checkOneDevice(s, below, b)
	if readOnlyAttribute(below) {
		r.errorf(valueAt(b), "Read-only", "%s is read-only: no program can write it. Remove it.", s.Key)
		return
	}
	written := s.Target("") // the value that apply writes
	if s.Unknown != "" || written == "" {
		return
	}
	switch last := path.Base(below); {
	case policy.InPattern("devices/system/cpu/*/online", below):
		cpus := path.Base(path.Dir(below))
		first, _ := path.Match(cpus, "cpu0")
		second, _ := path.Match(cpus, "cpu1")
		if first && second && written == "0" {
			r.errorf(valueAt(b), "Stops the node", "%s = 0 takes every CPU offline that the kernel can. Name the CPUs: "+
				"devices/system/cpu/cpu1/online.", s.Key)
		}
	case below == "devices/system/cpu/smt/control" && written == "forceoff":
		r.warnf(valueAt(b), "Cannot be undone", "forceoff lasts until the next boot, so `nodegate revert` cannot restore the old value. "+
			"Write \"off\".")
	case policy.InPattern("block/*/queue/scheduler", below):
		r.checkScheduler(written, b)
	case last == "scaling_governor":
		r.checkWord(written, b, "CPU frequency governor", "conservative", "ondemand", "performance", "powersave", "schedutil", "userspace")
	case strings.HasSuffix(last, "_cpus") || strings.HasSuffix(last, "_rxqs") || last == "cpumask":
		if !regexp.MustCompile(`^[0-9a-fA-F]+(,[0-9a-fA-F]+)*$`).MatchString(written) {
			r.errorf(valueAt(b), "Wrong value", "%s takes a mask in hexadecimal digits, such as \"f\" for CPUs 0 to 3 or "+
				"\"00000001,00000000\" for CPU 32, not %q.", s.Key, written)
		}
	default:
		r.checkOctal(s.Key, written, valueAt(b))
		r.checkLimits(s, b)
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

// checkLimits reports a number that the kernel refuses. Sources: mm/ksm.c, net/core/net-sysfs.c.
func (r *reading) checkLimits(s policy.Sysctl, b policy.Stanza) {
	const most = 1<<63 - 1
	for pattern, high := range map[string]int64{
		"kernel/mm/ksm/run": 2, "class/net/*/threaded": 1, "class/net/*/gro_flush_timeout": most, "class/net/*/napi_defer_hard_irqs": 1<<31 - 1,
	} {
		written := s.Target("")
		n, is := policy.ParseNumber(written)
		if !policy.InPattern(pattern, below(s.Key)) || is && 0 <= n && n <= high {
			continue
		}
		r.errorf(valueAt(b), "Refused by the kernel", "%s takes a number from 0 to %d, not %q.", s.Key, high, written)
	}
}

// readOnlyAttribute reports whether no kernel lets a program write an attribute.
func readOnlyAttribute(below string) bool {
	dir, last := path.Split(below)
	return slices.ContainsFunc(kernels.Rules("readonly"), func(rule kernels.Rule) bool {
		return policy.InPattern(rule.Words[0], path.Clean(dir)) && slices.Contains(rule.Words[1:], last)
	})
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
