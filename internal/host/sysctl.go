package host

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// SysctlNumber reads a parameter that is a number. The kernel keeps all of these in 32 bits.
func (h *Host) SysctlNumber(key string) (uint64, error) {
	text, err := h.ReadSysctl(key)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", strings.ReplaceAll(key, "/", "."), err)
	}
	return n, nil
}

// ReadSysctl reads a kernel parameter by its path below /proc/sys, or an attribute by its path, which begins with /sys/. Of a list of
// choices the value is the word in brackets. Tabs and runs of spaces become
// one space: net/ipv4/tcp_rmem is written with spaces and read with tabs. The error is
// fs.ErrPermission for a write-only parameter, and fs.ErrNotExist for a directory or a path below a
// file, which are not parameters.
func (h *Host) ReadSysctl(key string) (string, error) {
	name, err := h.sysctlFile(key)
	if err != nil {
		return "", err
	}
	b, err := h.Files.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrPermission) && h.noParameter(name, err) {
		err = &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
	}
	if err != nil {
		return "", fmt.Errorf("reading sysctl: %w", err)
	}
	value := strings.Join(strings.Fields(string(b)), " ")
	if strings.HasPrefix(name, sysfsRoot) {
		value, _ = selected(value)
	}
	return value, nil
}

// sysfsRoot begins the key of an attribute below /sys.
const sysfsRoot = "/sys/"

// selected returns the word in brackets of a list of choices, and all choices: madvise of "always [madvise] never". A text without
// brackets is its own value, and has no choices.
func selected(text string) (value string, choices []string) {
	value = text
	for word := range strings.FieldsSeq(text) {
		if in, is := strings.CutPrefix(word, "["); is {
			if in, is = strings.CutSuffix(in, "]"); is {
				word, value = in, in
			}
		}
		choices = append(choices, word)
	}
	if value == text {
		return text, nil
	}
	return value, choices
}

// Choices returns the words that the kernel offers for an attribute below /sys, or nil if it lists none.
func (h *Host) Choices(key string) []string {
	text, err := h.Text(key)
	if err != nil || !strings.HasPrefix(key, sysfsRoot) {
		return nil
	}
	_, choices := selected(text)
	return choices
}

// ReadOnly reports whether a parameter is certainly not writable for any user.
func (h *Host) ReadOnly(key string) bool {
	name, err := h.sysctlFile(key)
	if err != nil {
		return false
	}
	head, err := h.Files.Head(name)
	return err == nil && head.Mode&0o222 == 0
}

// noParameter reports whether an unreadable name is not a parameter.
func (h *Host) noParameter(name string, err error) bool {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return true
	}
	_, noDir := h.Files.ReadDir(name)
	return noDir == nil
}

// WriteSysctl writes a kernel parameter. The kernel may clamp or ignore the value:
// read it back. Outside the initial network namespace some parameters return
// fs.ErrPermission even to root.
func (h *Host) WriteSysctl(key, value string) error {
	name, err := h.sysctlFile(key)
	if err != nil {
		return err
	}
	if err := h.Files.Write(name, []byte(value+"\n")); err != nil {
		head, unreadable := h.Files.Head(name)
		if errors.Is(err, fs.ErrPermission) && unreadable == nil && head.Mode != 0 && head.Mode&0o222 == 0 {
			return readOnly(key, fmt.Errorf("writing %q to sysctl: %w", value, err))
		}
		return fmt.Errorf("writing %q to sysctl: %w", value, h.confined(err))
	}
	return nil
}

// readOnly explains that a parameter has mode 0444. Outside the initial network namespace that is the mode of parameters that the
// namespace does not own.
func readOnly(key string, err error) error {
	if strings.HasPrefix(key, "net/") {
		return &Refusal{err, "it is read-only here: on this kernel, or outside the initial network namespace",
			"run nodegate in the initial network namespace; if it is read-only there too, remove it from the policy"}
	}
	return &Refusal{err, "it is read-only on this kernel", "remove it from the policy: no program can write it"}
}

func (h *Host) sysctlFile(key string) (string, error) {
	if !h.Live() {
		return "", fmt.Errorf("sysctl %s: %w", key, errTree)
	}
	below, attribute := strings.CutPrefix(key, sysfsRoot)
	// An interface name may contain any bytes, so fs.ValidPath does not fit.
	for _, part := range strings.Split(below, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsRune(part, 0) {
			return "", fmt.Errorf("%q is not the path of a sysctl", key)
		}
	}
	if attribute {
		return key, h.followsLink(key)
	}
	return "/proc/sys/" + key, nil
}

// followsLink returns an error if a component of an attribute's path is a link to another directory of /sys. Only the names of devices
// in their classes, and the frequency policy of a CPU, are links by which an attribute is known.
func (h *Host) followsLink(key string) error {
	for i, c := range key {
		if at := key[:i]; c == '/' && len(at) > len(sysfsRoot) && !isDeviceName(at) {
			if to, err := h.Files.ReadLink(at); err == nil {
				return fmt.Errorf("%s was not opened: %s is a link to %s; name the attribute by its own path", key, at, to)
			}
		}
	}
	if to, err := h.Files.ReadLink(key); err == nil {
		return fmt.Errorf("%s was not opened: it is a link to %s", key, to)
	}
	return nil
}

// isDeviceName reports whether a path of /sys is a link by which attributes are known.
func isDeviceName(name string) bool {
	return regexp.MustCompile(`^/sys/(block/[^/]+|class/(net|bdi)/[^/]+|devices/system/cpu/cpu[0-9]+/cpufreq)$`).MatchString(name)
}

// GlobSysctl returns the paths that match a pattern with wildcards, sorted. No match is not an
// error. A returned path may not be a parameter: net/*/conf/all/forwarding also matches below the
// file net/nf_conntrack_max, and reading that path returns fs.ErrNotExist.
func (h *Host) GlobSysctl(pattern string) ([]string, error) {
	if !h.Live() {
		return nil, fmt.Errorf("sysctl %s: %w", pattern, errTree)
	}
	keys, root := []string{""}, "/proc/sys"
	if below, attribute := strings.CutPrefix(pattern, sysfsRoot); attribute {
		keys, root, pattern = []string{sysfsRoot}, "/", below
	}
	for _, part := range strings.Split(pattern, "/") {
		var next []string
		for _, dir := range keys {
			if !strings.ContainsAny(part, "*?[") {
				next = append(next, path.Join(dir, part))
				continue
			}
			names, err := h.Files.ReadDir(path.Join(root, dir))
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("listing sysctls: %w", err)
			}
			for _, n := range names {
				if ok, err := path.Match(part, n); err != nil {
					return nil, fmt.Errorf("matching sysctls: %q: %w", part, err)
				} else if ok {
					next = append(next, path.Join(dir, n))
				}
			}
		}
		keys = next
	}
	return keys, nil
}

// Parameter is a kernel parameter, by its path below /proc/sys, and its value.
type Parameter struct{ Key, Value string }

// cascades lists the parameters that recorded kernels change along with another one; internal/e2e/kernels writes it. "*" stands for an
// interface, which is the same one as in the first parameter if that has a "*".
//
//go:embed cascades.txt
var cascades string

// Related returns the parameters that the kernel may change when key is written, with their present values. A newer kernel may pass a
// value on to the interfaces that the recorded ones do not.
func (h *Host) Related(key string) []Parameter {
	var patterns []string
	parts := strings.Split(key, "/")
	if isBroad(parts) {
		patterns = []string{path.Join(path.Dir(path.Dir(key)), "*", path.Base(key))}
	}
	for line := range strings.Lines(cascades) {
		words := strings.Fields(line)
		if of, _ := path.Match(words[0], key); !of {
			continue
		}
		for _, pattern := range words[1:] {
			if strings.Contains(words[0], "*") {
				pattern = strings.Replace(pattern, "*", parts[3], 1)
			}
			patterns = append(patterns, pattern)
		}
	}
	var all []Parameter
	seen := map[string]bool{key: true}
	for _, pattern := range patterns {
		keys, err := h.GlobSysctl(pattern)
		if err != nil {
			continue
		}
		for _, k := range keys {
			if now, err := h.ReadSysctl(k); err == nil && !seen[k] {
				all = append(all, Parameter{k, now})
			}
			seen[k] = true
		}
	}
	return all
}

// isBroad reports whether a path is one of conf/all, conf/default and neigh/default.
func isBroad(parts []string) bool {
	return len(parts) == 5 && parts[0] == "net" && (parts[3] == "all" || parts[3] == "default")
}

// WriteOrder returns a number by which parameters are sorted before they are written: one that changes others comes before them.
func WriteOrder(key string) int {
	parts := strings.Split(key, "/")
	switch {
	case key == "net/ipv4/ip_forward":
		return 0
	case key == "net/ipv4/conf/all/forwarding":
		return 1
	case isBroad(parts) && parts[3] == "all":
		return 2
	case isBroad(parts):
		return 3
	}
	return 4
}
