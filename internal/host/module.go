package host

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"nodegate/internal/host/config"
)

// ModuleState is the state of a kernel module. The zero value is unknown.
type ModuleState int

// The states of a module.
const (
	ModuleUnknown  ModuleState = iota
	ModuleLoaded               // a loadable module that is live
	ModuleBuiltIn              // part of the kernel's own image
	ModuleLoadable             // not loaded, but installed for this kernel
	ModuleMissing              // not installed for this kernel
)

func (s ModuleState) String() string {
	return [...]string{"unknown", "loaded", "built in", "not loaded", "not installed"}[s]
}

// Present reports whether the module's code is running.
func (s ModuleState) Present() bool { return s == ModuleLoaded || s == ModuleBuiltIn }

// Module returns the state of a module in the running kernel. A built-in module may have neither a
// /sys/module directory nor a line in modules.builtin (a kernel without module support has
// neither), so the files that the module provides are checked first.
func (h *Host) Module(name string) (ModuleState, error) {
	if !h.Live() {
		return ModuleUnknown, fmt.Errorf("module %s: %w", name, errTree)
	}
	name = underscores(name)
	switch state, err := h.Text("/sys/module/" + name + "/initstate"); {
	case err == nil && state == "live":
		return ModuleLoaded, nil
	case err == nil:
		return ModuleUnknown, fmt.Errorf("module %s is %q: the kernel has not finished loading it", name, state)
	case !errors.Is(err, fs.ErrNotExist):
		return ModuleUnknown, err
	}
	if _, err := h.Files.ReadDir("/sys/module/" + name); err == nil || h.isProvided(name) {
		return ModuleBuiltIn, nil
	}
	release, err := h.Kernel.Release()
	if err != nil {
		return ModuleUnknown, err
	}
	state, err := h.InstalledModule(release, name)
	if errors.Is(err, fs.ErrNotExist) {
		return ModuleMissing, nil
	}
	return state, err
}

// isProvided looks in /proc for files that only this module creates. It knows the modules for which
// that is certain.
func (h *Host) isProvided(name string) bool {
	switch name {
	case "br_netfilter":
		_, err := h.Files.ReadFile("/proc/sys/net/bridge/bridge-nf-call-iptables")
		return err == nil
	case "nf_conntrack":
		_, err := h.Files.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
		return err == nil
	case "overlay":
		b, err := h.Files.ReadFile("/proc/filesystems")
		return err == nil && bytes.Contains(b, []byte("\toverlay\n"))
	}
	return false
}

// Releases returns the kernels that have a module directory.
func (h *Host) Releases() ([]string, error) {
	names, err := h.ReadDirIfAny("/lib/modules")
	if err != nil {
		return nil, fmt.Errorf("listing installed kernels below %s: %w", h.Root, err)
	}
	return names, nil
}

// InstalledModule returns a module's state according to the files of one installed kernel: built
// in, loadable or missing. The error wraps fs.ErrNotExist if that kernel lacks modules.dep: the
// kernel is not installed, or depmod never ran.
func (h *Host) InstalledModule(release, name string) (ModuleState, error) {
	name = underscores(name)
	dir := "/lib/modules/" + release
	builtin, err := h.Files.ReadFile(dir + "/modules.builtin")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ModuleUnknown, err
	}
	if listsModule(builtin, name) {
		return ModuleBuiltIn, nil
	}
	dep, err := h.Files.ReadFile(dir + "/modules.dep")
	if err != nil {
		return ModuleUnknown, fmt.Errorf("reading the modules of kernel %s: %w", release, err)
	}
	if listsModule(dep, name) {
		return ModuleLoadable, nil
	}
	return ModuleMissing, nil
}

// ModuleFiles returns the files that one installed kernel loads for a module according to
// modules.dep: the module's own file first, then its dependencies. The files may be missing.
func (h *Host) ModuleFiles(release, name string) ([]string, error) {
	dir := "/lib/modules/" + release
	dep, err := h.Files.ReadFile(dir + "/modules.dep")
	if err != nil {
		return nil, fmt.Errorf("reading the modules of kernel %s: %w", release, err)
	}
	file, needs, _ := bytes.Cut(moduleLine(dep, underscores(name)), []byte(":"))
	var files []string
	for _, f := range append([]string{string(file)}, strings.Fields(string(needs))...) {
		switch {
		case f == "":
		case path.IsAbs(f):
			files = append(files, f)
		default:
			files = append(files, dir+"/"+f)
		}
	}
	return files, nil
}

// Modprobe returns the lines of modprobe.d, in a recording without words that may be any text: modules have names in lower case.
func (h *Host) Modprobe() ([]config.Modprobe, error) {
	return Conclude(h, "modprobe.d", "", func(h *Host) ([]config.Modprobe, error) {
		lines, err := config.ModprobeConfig(h.Files)
		for i := range lines {
			if w := words(h.Files); h.memo.keeps {
				lines[i].Rest = w.Plain(lines[i].Rest, "")
				if name := lines[i].Module; strings.ToLower(name) != name || strings.ContainsAny(name, ".:@/") {
					lines[i].Module = config.LeftOut
				}
			}
		}
		return lines, err
	})
}

// Forbidden returns the line of modprobe.d that keeps modprobe from loading an installed module, or one that it needs.
func (h *Host) Forbidden(release, name string) (line config.Modprobe, is bool, err error) {
	modprobe, err := h.Modprobe()
	files, failed := h.ModuleFiles(release, name)
	for _, file := range files {
		if line, is = config.Install(modprobe, ModuleName(file)); is && line.Disables() {
			return line, true, nil
		}
	}
	return config.Modprobe{}, false, errors.Join(err, failed)
}

// LoadRemedy returns a remedy that loads modules into the running kernel, after the line of modprobe.d that forbids one of them.
func (h *Host) LoadRemedy(remedy string, names ...string) string {
	release, _ := h.Kernel.Release()
	for _, name := range names {
		if line, is, _ := h.Forbidden(release, name); is {
			remedy = line.Removal() + ", then " + remedy
		}
	}
	return remedy
}

// ModuleName returns the name of the module in a file: br_netfilter for
// /lib/modules/6.1.0/kernel/net/bridge/br_netfilter.ko.xz.
func ModuleName(file string) string {
	base, _, _ := strings.Cut(path.Base(file), ".ko")
	return underscores(base)
}

// ModulePackage returns the name of the distribution's package that contains a kernel's modules.
func (h *Host) ModulePackage(release string) string {
	distribution, _ := h.OSRelease() // without one, the remedy names no package
	switch {
	case distribution.Like("rhel", "fedora", "centos"):
		return modulesExtra(release)
	case distribution.Like("ubuntu"):
		return fmt.Sprintf("linux-modules-%[1]s and linux-modules-extra-%[1]s", release)
	case distribution.Like("debian"):
		return "linux-image-" + release
	}
	return "the package for kernel " + release
}

// modulesExtra returns the package name on RPM distributions: every kernel other than the
// distribution's default one has its own packages.
func modulesExtra(release string) string {
	base, variant, _ := strings.Cut(release, "+") // 5.14.0-503.el9.x86_64+rt
	switch k, err := config.ParseKernelRelease(release); {
	case variant != "":
		return "kernel-" + variant + "-modules-extra-" + base
	case strings.Contains(release, "uek."): // since UEK 8 with a separate package for the packet filter
		return fmt.Sprintf("kernel-uek-modules-extra-%[1]s or kernel-uek-modules-extra-netfilter-%[1]s", release)
	case strings.Contains(release, ".amzn2023.") && err == nil && k.AtLeast(6, 2):
		return fmt.Sprintf("kernel%d.%d-modules-extra-%s", k.Version[0], k.Version[1], release)
	}
	return "kernel-modules-extra-" + release
}

func listsModule(index []byte, name string) bool { return moduleLine(index, name) != nil }

// moduleLine returns the line of a module's file in modules.dep ("path: dependencies")
// or modules.builtin ("path").
func moduleLine(index []byte, name string) []byte {
	lines := bufio.NewScanner(bytes.NewReader(index))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		file, _, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		if ModuleName(string(bytes.TrimSpace(file))) == name {
			return lines.Bytes()
		}
	}
	return nil
}

func underscores(name string) string { return strings.ReplaceAll(name, "-", "_") }
