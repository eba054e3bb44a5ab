package policy

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"nodegate/policy/kernels"
)

// checkAttribute reports a value that no kernel accepts for an attribute of /sys, and one that stops the node.
func (r *reader) checkAttribute(s Sysctl, b block) {
	below := strings.TrimPrefix(string(s.Key), sysfsRoot)
	if r.names {
		r.checkAttributeName(below, b)
	}
	r.checkOneDevice(s, below, b)
	if readOnlyAttribute(below) {
		r.errorf(b.valueAt(), "Read-only", "%s is read-only: no program can write it. Remove it.", s.Key)
		return
	}
	written := s.Target("") // the value that apply writes
	if len(r.unknown) > 0 || written == "" {
		return
	}
	switch last := path.Base(below); {
	case inPattern("devices/system/cpu/*/online", below):
		cpus := path.Base(path.Dir(below))
		first, _ := path.Match(cpus, "cpu0")
		second, _ := path.Match(cpus, "cpu1")
		if first && second && written == "0" {
			r.errorf(b.valueAt(), "Stops the node", "%s = 0 takes every CPU offline that the kernel can. Name the CPUs: "+
				"devices/system/cpu/cpu1/online.", s.Key)
		}
	case below == "devices/system/cpu/smt/control" && written == "forceoff":
		r.warnf(b.valueAt(), "Cannot be undone", "forceoff lasts until the next boot, so `nodegate revert` cannot restore the old value. "+
			"Write \"off\".")
	case inPattern("block/*/queue/scheduler", below):
		r.checkScheduler(written, b)
	case last == "scaling_governor":
		r.checkWord(written, b, "CPU frequency governor", "conservative", "ondemand", "performance", "powersave", "schedutil", "userspace")
	case strings.HasSuffix(last, "_cpus") || strings.HasSuffix(last, "_rxqs") || last == "cpumask":
		if !regexp.MustCompile(`^[0-9a-fA-F]+(,[0-9a-fA-F]+)*$`).MatchString(written) {
			r.errorf(b.valueAt(), "Wrong value", "%s takes a mask in hexadecimal digits, such as \"f\" for CPUs 0 to 3 or "+
				"\"00000001,00000000\" for CPU 32, not %q.", s.Key, written)
		}
	default:
		r.checkOctal(s.Key, written, b.valueAt())
		r.checkLimits(s, b)
	}
}

// checkScheduler reports an I/O scheduler that no supported kernel has (block/elevator.c; the first three went with Linux 5.0).
func (r *reader) checkScheduler(name string, b block) {
	old := map[string]string{"noop": "none", "deadline": "mq-deadline", "cfq": "bfq"}
	known := []string{"none", "mq-deadline", "kyber", "bfq"}
	switch {
	case old[name] != "" && r.Fact == nil && b.get("when") == nil: // with facts, the condition was evaluated apart
		r.errorf(b.valueAt(), "Wrong value", "Linux 5.0 removed the I/O scheduler %s. Write %q, or when = !version_at_least(kernel.version, "+
			"\"5.0\").", name, old[name])
	case old[name] == "":
		r.checkWord(name, b, "I/O scheduler", known...)
	}
}

// checkWord warns about a word that no supported kernel has for an attribute.
func (r *reader) checkWord(word string, b block, what string, known ...string) {
	if r.names && !r.isAllowed(word) && !slices.Contains(known, word) {
		r.warnf(b.valueAt(), "Unknown "+what, "Linux has %s, not %q.%s", alternatives(known), word, didYouMean(word, known))
	}
}

// checkLimits reports a number that the kernel refuses. Sources: mm/ksm.c, net/core/net-sysfs.c.
func (r *reader) checkLimits(s Sysctl, b block) {
	const most = 1<<63 - 1
	for pattern, high := range map[string]int64{
		"kernel/mm/ksm/run": 2, "class/net/*/threaded": 1, "class/net/*/gro_flush_timeout": most, "class/net/*/napi_defer_hard_irqs": 1<<31 - 1,
	} {
		written := s.Target("")
		n, is := parseNumber(written)
		if !inPattern(pattern, strings.TrimPrefix(string(s.Key), sysfsRoot)) || is && 0 <= n && n <= high {
			continue
		}
		r.errorf(b.valueAt(), "Refused by the kernel", "%s takes a number from 0 to %d, not %q.", s.Key, high, written)
	}
}

// readOnlyAttribute reports whether no kernel lets a program write an attribute.
func readOnlyAttribute(below string) bool {
	dir, last := path.Split(below)
	return slices.ContainsFunc(kernels.Rules("readonly"), func(rule kernels.Rule) bool {
		return inPattern(rule.Words[0], path.Clean(dir)) && slices.Contains(rule.Words[1:], last)
	})
}

// checkAttributeName warns about a name that a directory of /sys has on no kernel.
func (r *reader) checkAttributeName(below string, b block) {
	parts := strings.Split(below, "/")
	for _, rule := range kernels.Rules("attribute") {
		depth := strings.Count(rule.Words[0], "/") + 1
		if len(parts) <= depth || !inPattern(rule.Words[0], strings.Join(parts[:depth], "/")) || r.isAllowed(below) {
			continue
		}
		if !slices.ContainsFunc(rule.Words[1:], func(name string) bool { return globsMeet(name, parts[depth]) }) {
			r.warnf(b.Range, "Unknown attribute", "/sys/%s: no supported kernel has %q there, so a node would be held.%s If yours has it, add: "+
				"lint { allow = [\"unknown-attribute:%[1]s\"] }", below, parts[depth], didYouMean(parts[depth], rule.Words[1:]))
			return
		}
	}
}

// checkOneDevice warns about an attribute of one device, which other nodes may not have.
func (r *reader) checkOneDevice(s Sysctl, below string, b block) {
	if s.Severity != Block || r.Fact != nil || b.get("when") != nil {
		return
	}
	parts := strings.Split(below, "/")
	at := slices.IndexFunc([]string{"block/*/**", "class/net/*/**"}, func(p string) bool { return inPattern(p, below) })
	if at >= 0 && !Key(parts[at+1]).IsGlob() && parts[at+1] != "lo" {
		parts[at+1] = "*"
		r.warnf(b.Range, "Only with this device", "%s exists only while the node has that device: a node without it is held. For all devices "+
			"write %q, or add a condition with when.", s.Key, strings.Join(parts, "/"))
	}
	for _, rule := range kernels.Rules("hardware") {
		if inPattern(rule.Words[0], below) && !s.Key.IsGlob() {
			r.warnf(b.Range, "Only with this device", "%s exists only on %s: any other node is held. Write severity = \"warn\", or a glob, which "+
				"may match nothing.", s.Key, rule.Effect)
			return
		}
	}
}
