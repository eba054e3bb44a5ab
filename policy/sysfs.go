package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"nodegate/policy/kernels"
)

// sysfsRoot begins the Key of an attribute below /sys.
const sysfsRoot = "/sys/"

// WritableAttributes returns the patterns of the attributes below /sys that a policy may set. Other attributes are commands to a device
// (reset, remove, bind), or belong to another program.
func WritableAttributes() []string {
	return []string{
		"kernel/mm/**",                                     // huge pages, KSM, multi-generational LRU: Documentation/admin-guide/mm
		"devices/system/cpu/**",                            // frequency, idle states, SMT: Documentation/admin-guide/pm
		"devices/system/node/*/hugepages/**",               // huge pages of one NUMA node
		"devices/system/clocksource/*/current_clocksource", // tsc in place of xen; its neighbour unbinds one for ever
		"devices/virtual/workqueue/**",                     // cpumask of kernel workers, on nodes with isolated CPUs
		"block/*/queue/**",                                 // scheduler, read-ahead, depth: Documentation/block/queue-sysfs.rst
		"module/*/parameters/*",                            // parameters that a loaded module accepts
		"class/net/*/queues/**",                            // receive and transmit packet steering: Documentation/networking/scaling.rst
		"class/net/*/threaded",                             // NAPI in kernel threads: Documentation/networking/napi.rst
		"class/net/*/gro_flush_timeout",                    // software interrupt coalescing, the same document
		"class/net/*/napi_defer_hard_irqs",                 // the same
		"class/bdi/*/read_ahead_kb",                        // read-ahead of a file system without a disk, such as NFS
		"class/bdi/*/max_ratio",                            // its share of dirty memory
	}
}

// commandNames are attributes whose writing makes the kernel do something once, without a value to keep. They are in directories in
// which other attributes are settings. Documentation/ABI/testing/sysfs-devices-system-cpu, sysfs-kernel-mm-hugepages.
func commandNames() []string {
	return []string{
		"uevent", "probe", "release", "reload", "fail", "target", "demote", "bind", "unbind", "new_id", "remove_id", "driver_override",
		"remove", "rescan", "reset", "compact", "clear", "trigger", "nuke",
	}
}

// linkIn returns a component of a path that sysfs makes as a link to another directory, or "". Host refuses any other link.
func linkIn(below string) string {
	for i, part := range strings.Split(below, "/") {
		node := strings.TrimPrefix(part, "node")
		isNode := node != part && strings.Trim(node, "0123456789*?[]-") == "" && strings.HasPrefix(below, "devices/system/cpu/")
		if i > 0 && (isNode || slices.Contains([]string{"driver", "subsystem", "firmware_node", "device", "physfn"}, part)) {
			return part
		}
	}
	return ""
}

// isCommand reports whether the last component of a path, which may be a glob, matches a command.
func isCommand(below string) bool {
	if strings.HasPrefix(below, "module/") { // a parameter's name is the module's choice
		return false
	}
	return slices.ContainsFunc(commandNames(), func(name string) bool {
		matches, err := path.Match(path.Base(below), name)
		return err == nil && matches
	})
}

// words returns the words that the kernel accepts for an attribute, or nil if they depend on the device or are not words.
func (k Key) words() []string {
	for _, rule := range kernels.Rules("words") {
		if sysfsRoot+rule.Words[0] == string(k) {
			return rule.Words[1:]
		}
	}
	return nil
}

// InSysfs reports whether the key is the path of an attribute below /sys.
func (k Key) InSysfs() bool { return strings.HasPrefix(string(k), sysfsRoot) }

// CheckName returns the name of the requirement: "sysctl.net.ipv4.ip_forward", "sysfs.kernel/mm/ksm/run".
func (k Key) CheckName() string {
	if below, is := strings.CutPrefix(string(k), sysfsRoot); is {
		return "sysfs." + below
	}
	return "sysctl." + k.String()
}

// File returns the file that holds the parameter.
func (k Key) File() string {
	if k.InSysfs() {
		return string(k)
	}
	return "/proc/sys/" + string(k)
}

// parameterKey returns the key in the label of a sysctl or sysfs block.
func (b block) parameterKey() (Key, error) {
	if b.Type == "sysfs" {
		return parseAttribute(b.Name)
	}
	return ParseKey(b.Name)
}

// parseAttribute accepts a path relative to /sys, or an absolute one.
func parseAttribute(s string) (Key, error) {
	below := strings.TrimPrefix(s, sysfsRoot)
	if strings.HasPrefix(below, "/") {
		return "", fmt.Errorf("%q is not below /sys; write for example kernel/mm/transparent_hugepage/enabled", s)
	}
	key, err := ParseKey(below)
	switch {
	case err != nil:
		return "", attributeError(err)
	case !strings.Contains(s, "/") && strings.HasPrefix(s, "kernel."):
		return "", fmt.Errorf("%q has dots; write the path: %q", s, sysfsRoot+strings.ReplaceAll(s, ".", "/"))
	case inPattern("class/net/*/mtu", below):
		return "", fmt.Errorf("the MTU is a link's. Write: link \"NAME\" { mtu = NUMBER }, with match { name = %q } in it",
			strings.Split(below, "/")[2])
	case !slices.ContainsFunc(WritableAttributes(), func(p string) bool { return inPattern(p, below) }):
		return "", fmt.Errorf("a policy may not write %q; it may write below kernel/mm, devices/system/cpu, block/*/queue, "+
			"module/*/parameters and class/net/*/queues, and some others (docs/policy.md)", s)
	}
	if link := linkIn(below); link != "" {
		return "", fmt.Errorf("%q leads through the link %s to another device; name the attribute by its own path", s, link)
	}
	if isCommand(below) {
		return "", fmt.Errorf("%q is a command to the kernel, or matches one (%s, ...), not a setting; name a setting", s,
			strings.Join(commandNames()[:7], ", "))
	}
	return sysfsRoot + key, nil
}

// attributeError replaces the example of a sysctl in an error of ParseKey.
func attributeError(err error) error {
	return errors.New(strings.NewReplacer("net.ipv4.ip_forward", "kernel/mm/ksm/run", "/proc/sys", "/sys").Replace(err.Error()))
}

// inPattern reports whether a path matches a pattern. A component ** at the end stands for one or more components. A component of
// the path may be a glob itself.
func inPattern(pattern, name string) bool {
	want, have := strings.Split(pattern, "/"), strings.Split(name, "/")
	for i, w := range want {
		switch {
		case i >= len(have):
			return false
		case w == "**":
			return true
		case w == "*" || w == have[i]:
		default:
			if is, _ := path.Match(w, have[i]); !is {
				return false
			}
		}
	}
	return len(want) == len(have)
}

// decodeSysfs reads a block with the attributes of a sysctl. The catalogue of kernels has no attributes of /sys.
func (r *reader) decodeSysfs(b block) (Sysctl, bool) {
	catalogue, names := r.catalogue, r.names
	r.catalogue, r.names = nil, false
	s, ok := r.decodeSysctl(b)
	r.catalogue, r.names = catalogue, names
	if ok && r.catalogue != nil {
		r.checkWords(s, b)
		r.checkHugePages(s, b)
		r.checkAttribute(s, b)
	}
	return s, ok
}

// checkWords reports a value that is not one of the words of an attribute.
func (r *reader) checkWords(s Sysctl, b block) {
	words, at, values := s.Key.words(), b.at("value"), []string{s.Value}
	if s.OneOf != nil {
		at, values = b.at("one_of"), s.OneOf
	}
	for i, v := range values {
		if i > 0 && s.Key == sysfsRoot+"devices/system/cpu/smt/control" && slices.Contains([]string{"notsupported", "notimplemented"}, v) {
			continue // read, never written
		}
		if words != nil && !slices.Contains(words, v) && len(r.unknown) == 0 {
			r.errorf(at, "Wrong value", "%s takes %s, not %q.%s", s.Key, alternatives(words), v, didYouMean(v, words))
		}
	}
}

// canonicalAttribute returns one form for values that mean the same to the kernel: 1 and Y of a module's parameter, f and
// 00000000,0000000f of a mask of CPUs, 7 and 0x0007.
func canonicalAttribute(key Key, value string) string {
	below := strings.TrimPrefix(string(key), sysfsRoot)
	last := path.Base(below)
	switch {
	case strings.HasSuffix(last, "_cpus"), strings.HasSuffix(last, "_rxqs"), last == "cpumask":
		mask := strings.ToLower(strings.TrimLeft(strings.TrimPrefix(strings.ReplaceAll(value, ",", ""), "0x"), "0"))
		if value != "" && strings.Trim(mask, "0123456789abcdef") == "" {
			return "0x0" + mask // never equal to a decimal number
		}
	case inPattern("module/*/parameters/*", below):
		switch value { // param_set_bool of kernel/params.c
		case "1", "y", "Y":
			return "Y"
		case "0", "n", "N":
			return "N"
		}
	case strings.HasPrefix(value, "0x"):
		if n, err := strconv.ParseUint(value[2:], 16, 63); err == nil {
			return strconv.FormatUint(n, 10)
		}
	}
	return value
}

// hugePage returns the size of a page if the attribute reserves huge pages.
func (k Key) hugePage() (bytes int64, is bool) {
	dir, last := path.Split(string(k))
	size, in := strings.CutPrefix(path.Base(dir), "hugepages-")
	size, kb := strings.CutSuffix(size, "kB")
	n, err := strconv.ParseInt(size, 10, 32)
	return n << 10, in && kb && err == nil && last == "nr_hugepages"
}

// checkHugePages reports huge pages that take too much of a node's memory, as checkMemory does for vm.nr_hugepages.
func (r *reader) checkHugePages(s Sysctl, b block) {
	bytes, is := s.Key.hugePage()
	if !is || !s.Applies() || len(r.unknown) > 0 {
		return
	}
	memory, known := int64(0), false
	if r.Fact != nil && readsAny(b.expressions(), "node.memory") {
		v, _ := r.Fact("node.memory")
		memory, known = v.(int64)
	}
	d := demand{"pages of " + strconv.FormatInt(bytes>>10, 10) + " kB", bytes, 80, 100,
		"nothing else can use it, and the kernel reserves fewer pages if it is not free"}
	found := d.judge(s, memory, known)
	switch {
	case found == nil:
	case found.Severity == hcl.DiagError:
		r.errorf(b.valueAt(), found.Summary, "%s", found.Detail)
	default:
		r.warnf(b.valueAt(), found.Summary, "%s", found.Detail)
	}
}

// valueAt returns the position of the required value.
func (b block) valueAt() hcl.Range {
	for _, name := range []string{"value", "one_of", "min"} {
		if b.get(name) != nil {
			return b.at(name)
		}
	}
	return b.at("max")
}
