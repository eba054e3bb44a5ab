package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
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
func (b Stanza) parameterKey() (Key, error) {
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
	case InPattern("class/net/*/mtu", below):
		return "", fmt.Errorf("the MTU is a link's. Write: link \"NAME\" { mtu = NUMBER }, with match { name = %q } in it",
			strings.Split(below, "/")[2])
	case !slices.ContainsFunc(WritableAttributes(), func(p string) bool { return InPattern(p, below) }):
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

// InPattern reports whether a path matches a pattern. A component ** at the end stands for one or more components. A component of
// the path may be a glob itself.
func InPattern(pattern, name string) bool {
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
	case InPattern("module/*/parameters/*", below):
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
