package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"nodegate/policy/kernels"
)

// asked is one value that a block requires on nodes with some of the recorded kernels.
type asked struct {
	key     Key
	target  string            // the value that apply writes
	allows  func(string) bool // whether a stored value satisfies the block
	at      hcl.Range
	kernels []string // versions
	others  bool     // the block is for other distributions
}

// checkDomains reports values that recorded kernels refuse, store as others, or never give back, and parameters that only some of them
// have. A block is judged for the kernels that its conditions include.
func (l *loader) checkDomains() hcl.Diagnostics {
	r := &reader{}
	for _, b := range l.blocks {
		if b.Type != "sysctl" && (b.Type != "link" || b.get("sysctl") == nil) {
			continue
		}
		if b.Type == "sysctl" {
			key, err := ParseKey(b.Name)
			switch {
			case err != nil:
				continue
			case l.catalogue.Domains(string(key)) != nil:
			case key.IsGlob():
				if found := l.checkGlob(b, key); found != nil {
					r.warnings = append(r.warnings, found)
				}
				continue
			default:
				continue
			}
			l.checkInterface(r, b, key)
		}
		one := &reader{}
		for _, a := range l.askedOn(b) {
			l.judge(one, b, a)
		}
		reported := map[string]bool{} // one value is enough of those that depend on facts
		for _, d := range slices.Concat(one.diags, one.warnings) {
			if key := d.Summary + d.Subject.String(); !reported[key] {
				reported[key] = true
				r.warnings = append(r.warnings, d)
			}
		}
	}
	return r.warnings
}

// askedOn returns the values that a block requires on the recorded kernels.
func (l *loader) askedOn(b block) []asked {
	expressions := b.expressions()
	nodes := imagine(l.distinct(expressions, l.candidates(expressions)))
	var all []asked
	versions := l.catalogue.Versions()
	others := b.get("when") != nil && l.isForOthers(b)
	onEach := !slices.ContainsFunc(expressions, readsKernel) && !slices.ContainsFunc(expressions, readsRelease)
	for i, version := range versions {
		if onEach && i > 0 {
			break // the values are the same
		}
		for _, facts := range nodes {
			cpus, _ := facts["node.cpus"].(int64)
			if memory, _ := facts["node.memory"].(int64); cpus > mostCPUs || memory > 16*hugeNode {
				continue
			}
			facts = maps.Clone(facts)
			if _, reads := facts["os.version"]; reads && facts["os.id"] == "debian" {
				facts["os.version"] = debianOf(version)
			}
			for _, name := range []string{"kernel.release", "kernel.version"} {
				if _, reads := facts[name]; reads {
					release := l.catalogue.Probed[i]
					if name == "kernel.version" {
						release, _, _ = strings.Cut(release, "-")
						release, _, _ = strings.Cut(release, "+")
					}
					facts[name] = release
				}
			}
			node := l.imagined(facts)
			node.blocks = []block{b}
			node.decode()
			for _, a := range node.asked(b) {
				same := slices.IndexFunc(all, func(o asked) bool { return o.key == a.key && o.target == a.target })
				switch {
				case same < 0:
					a.kernels, a.others = []string{version}, others
					all = append(all, a)
				case !slices.Contains(all[same].kernels, version):
					all[same].kernels = append(all[same].kernels, version)
				}
			}
		}
	}
	if onEach {
		for i := range all {
			all[i].kernels = versions
		}
	}
	return all
}

// asked returns the values that a block requires on the imagined node.
func (l *loader) asked(b block) []asked {
	var all []asked
	for _, s := range l.policy.Sysctls {
		if !s.Applies() {
			continue
		}
		for _, name := range []string{"value", "one_of", "min", "max"} {
			if b.get(name) == nil {
				continue
			}
			a := asked{key: s.Key, allows: s.Allows, at: b.at(name)}
			switch name {
			case "min":
				a.target = fmt.Sprint(*s.Min)
			case "max":
				a.target = fmt.Sprint(*s.Max)
			default:
				a.target = s.Target("")
			}
			all = append(all, a)
		}
	}
	for _, k := range l.policy.Links {
		for _, s := range k.Of(LinkSysctls) {
			if k.Applies() {
				all = append(all, asked{key: Key(s.Name), target: s.Value, allows: Sysctl{Value: s.Value}.Allows, at: b.at("sysctl")})
			}
		}
	}
	return all
}

// judge reports a value that some of the kernels refuse, or store as another one.
func (l *loader) judge(r *reader, b block, a asked) {
	if b.get("value") != nil || b.get("one_of") != nil {
		l.judgeWord(r, a)
	}
	domains := l.catalogue.Domains(string(a.key))
	if domains == nil || slices.Contains(zeroAfterBoot(), a.key) && a.allows("0") {
		return
	}
	var bad, fine, lack, oneWay []string
	var summary, why, advice string
	for _, version := range a.kernels {
		i := slices.IndexFunc(domains, func(d kernels.Domain) bool { return d.Version == version })
		if i < 0 {
			lack = append(lack, version)
			continue
		}
		d := domains[i]
		answer, stored := l.answer(d, a)
		switch {
		case answer == kernels.Refused && !withinBound(d, a, b):
			summary, why, advice = "Refused by the kernel", "refused by", acceptedBy(d)
		case answer == kernels.Rounded && !a.allows(stored):
			summary, why, advice = "Rounded by the kernel", "stored as "+stored+" by", ", so this would never pass. Write "+stored+"."
			if len(stored) >= 64 { // the beginning of a long string
				why = fmt.Sprintf("cut to %d bytes by", len(stored))
				advice = fmt.Sprintf(", so this would never pass. Write at most %d bytes.", len(stored))
			}
		case answer == kernels.ReadOnly && !slices.Contains([]Key{"crypto/fips_enabled", "kernel/ostype"}, a.key): // true without a write
			summary, why, advice = "Read-only", "read-only on", ": no program can write it. Remove it."
		default:
			if answer == kernels.Stored {
				fine = append(fine, version)
			}
			if d.OneWay(a.target) && !coupled(a.key) {
				oneWay = append(oneWay, version)
			}
			continue
		}
		bad = append(bad, version)
	}
	if bad != nil && a.others {
		advice = " of Debian. Another distribution's kernel may differ."
	}
	if bad != nil {
		severity := hcl.DiagWarning
		if when := b.get("when"); fine == nil || when != nil && readsKernel(when) {
			severity = hcl.DiagError
		}
		if a.others || summary == "Read-only" && len(bad) < len(domains) {
			severity = hcl.DiagWarning // the kernel of another distribution, or another build, may accept it
		}
		if key, _ := ParseKey(b.Name); summary == "Read-only" && key != a.key && b.Type == "sysctl" {
			severity = hcl.DiagWarning // a glob: the value can be right without a write
		}
		r.warnings = append(r.warnings, &hcl.Diagnostic{
			Severity: severity, Summary: summary, Subject: a.at.Ptr(),
			Detail: fmt.Sprintf("%s = %s: %s Linux %s%s", a.key, a.target, why, inWords(bad), advice),
		})
	}
	if oneWay != nil && !l.isAllowed(string(a.key)) {
		loads := ""
		if a.key == "kernel/modules_disabled" {
			loads = " No module loads any more, so load all that the node needs before."
		}
		r.warnf(a.at, "Cannot be undone", "%s = %s: the old value is refused by Linux %s until the next boot, so `nodegate revert` cannot "+
			"restore it.%s If you want that, add: lint { allow_names = [%q] }", a.key, a.target, inWords(oneWay), loads, a.key.String())
	}
	if lack != nil && !a.others && b.Type == "sysctl" && !strings.ContainsAny(b.Name, "*?[") {
		r.warnf(b.Range, "Not on every kernel", "%s: of the recorded kernels, only in Linux %s. A node with another one is held. Write "+
			"when = %s.", a.key, inWords(versionsOf(domains)), l.whenFor(versionsOf(domains)))
	}
}

// answer returns a kernel's answer to the value that a block asks for.
func (l *loader) answer(d kernels.Domain, a asked) (kernels.Answer, string) {
	answer, stored := d.Stores(a.target)
	if answer != kernels.Refused {
		return answer, stored
	}
	for _, pair := range dependent() { // the recorded limits are those of the other's default
		for i, key := range pair {
			other := func(b block) bool { k, _ := ParseKey(b.Name); return b.Type == "sysctl" && k == pair[1-i] }
			if key == a.key && slices.ContainsFunc(l.blocks, other) {
				return kernels.Unknown, ""
			}
		}
	}
	return answer, stored
}

// dependent returns pairs of parameters whose limits depend on each other. Sources: net/ipv4/sysctl_net_ipv4.c (ipv4_privileged_ports),
// kernel/sched/rt.c (sched_rt_global_validate), kernel/sched/deadline.c, net/sctp/sysctl.c, net/rds/sysctl.c.
func dependent() [][2]Key {
	return [][2]Key{
		{"net/ipv4/ip_local_port_range", "net/ipv4/ip_unprivileged_port_start"},
		{"kernel/sched_rt_period_us", "kernel/sched_rt_runtime_us"},
		{"kernel/sched_deadline_period_min_us", "kernel/sched_deadline_period_max_us"},
		{"net/sctp/rto_min", "net/sctp/rto_max"},
		{"net/sctp/pf_retrans", "net/sctp/ps_retrans"},
		{"net/rds/reconnect_min_delay_ms", "net/rds/reconnect_max_delay_ms"},
	}
}

// withinBound reports whether some accepted number satisfies a block with a bound: min = 0 of a parameter that is at least 1.
func withinBound(d kernels.Domain, a asked, b block) bool {
	if b.get("min") == nil && b.get("max") == nil {
		return false
	}
	low, high, known := d.Limits()
	return !known || a.allows(low.String()) || a.allows(high.String()) || b.get("min") != nil && b.get("max") != nil
}

// coupled reports whether the kernel restores the parameter's value after boot when another one is written.
func coupled(key Key) bool {
	return slices.ContainsFunc(exclusive(), func(pair [2]Key) bool { return key == pair[0] || key == pair[1] })
}

// zeroAfterBoot returns the parameters that are 0 after boot, although 0 cannot be written. Sources: mm/page-writeback.c, kernel/module,
// kernel/kexec_core.c, kernel/rcu/tree_stall.h, net/rds/tcp.c.
func zeroAfterBoot() []Key {
	return []Key{
		"vm/dirty_bytes", "vm/dirty_background_bytes", "kernel/modules_disabled", "kernel/kexec_load_disabled",
		"kernel/max_rcu_stall_to_panic", "net/rds/tcp/rds_tcp_rcvbuf", "net/rds/tcp/rds_tcp_sndbuf",
	}
}

// acceptedBy returns the end of a sentence with the numbers that a kernel accepts.
func acceptedBy(d kernels.Domain) string {
	low, high, known := d.Limits()
	if !known {
		return "."
	}
	return fmt.Sprintf("; accepted: %d to %d.", low, high)
}

// readsKernel reports whether an expression depends on the kernel.
func readsKernel(e hcl.Expression) bool {
	return slices.ContainsFunc(e.Variables(), func(t hcl.Traversal) bool { return t.RootName() == "kernel" })
}

// readsRelease reports whether an expression depends on the release of the distribution, which has a kernel.
func readsRelease(e hcl.Expression) bool {
	return slices.ContainsFunc(e.Variables(), func(t hcl.Traversal) bool { return factName(t) == "os.version" })
}

// debianOf returns the release of Debian that has the recorded kernel.
func debianOf(version string) string {
	return map[string]string{"5.10": "11", "6.1": "12", "6.12": "13"}[version]
}

func versionsOf(domains []kernels.Domain) []string {
	var all []string
	for _, d := range domains {
		all = append(all, d.Version)
	}
	return all
}

// whenFor returns a condition that includes the recorded kernels of these versions, which are neighbours, and no other recorded one.
func (l *loader) whenFor(versions []string) string {
	all := l.catalogue.Versions()
	first, last := slices.Index(all, versions[0]), slices.Index(all, versions[len(versions)-1])
	var terms []string
	if first > 0 {
		terms = append(terms, fmt.Sprintf("version_at_least(kernel.version, %q)", all[first]))
	}
	if last < len(all)-1 {
		terms = append(terms, fmt.Sprintf("!version_at_least(kernel.version, %q)", all[last+1]))
	}
	return strings.Join(terms, " && ")
}

// inWords joins words for a sentence: "5.10, 6.1 and 6.12".
func inWords(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// checkInterface reports a blocking parameter of one interface, which a node without it does not have.
func (l *loader) checkInterface(r *reader, b block, key Key) {
	parts := strings.Split(string(key), "/")
	everywhere := []string{"all", "default", "lo"}
	if len(parts) < 5 || parts[2] != "conf" && parts[2] != "neigh" || slices.Contains(everywhere, parts[3]) || key.IsGlob() {
		return
	}
	for _, s := range l.policy.Sysctls {
		if s.Key == key && s.Severity == Block && s.Range == b.Range {
			link := parts[3]
			parts[3] = "*"
			r.warnf(b.Range, "Only with this interface", "%s exists only while the node has %s: a node without it is held. For any interface of "+
				"that name write: link \"NAME\" { match { name = %q } sysctl = { %q = VALUE } }.", key, link, link, Key(strings.Join(parts, "/")))
		}
	}
}

// judgeWord reports a congestion control algorithm or a queueing discipline for which neither the recorded kernels nor the policy has a
// module. The kernel loads it by its name.
func (l *loader) judgeWord(r *reader, a asked) {
	var prefix, what string
	builtin := []string{"reno", "cubic"}
	switch a.key {
	case "net/ipv4/tcp_congestion_control":
		prefix, what = "tcp_", "congestion control algorithm"
	case "net/core/default_qdisc":
		prefix, what, builtin = "sch_", "queueing discipline", []string{"pfifo_fast", "pfifo", "bfifo", "mq", "noqueue"}
	default:
		return
	}
	known := slices.Clone(builtin)
	for _, m := range l.catalogue.Modules {
		if name, is := strings.CutPrefix(m, prefix); is {
			known = append(known, name)
		}
	}
	own := func(b block) bool {
		return b.Type == "module" && strings.ReplaceAll(b.Name, "-", "_") == prefix+a.target
	}
	if slices.Contains(known, a.target) || slices.ContainsFunc(l.blocks, own) {
		return
	}
	r.errorf(a.at, "Refused by the kernel", "%q is not a %s: no recorded kernel has a module %s%s.%s If yours has it, add: "+
		"module \"%s%s\" {}", a.target, what, prefix, a.target, didYouMean(a.target, known), prefix, a.target)
}
