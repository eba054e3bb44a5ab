// Command record writes the catalogue of the kernels of Debian 11, 12 and 13: modules, kinds of
// links, offloads, and of every parameter below /proc/sys the type, the module that registers it, and the kernel's answers to values;
// see kernels.Domain. It unpacks the packages of each kernel and boots the kernel in QEMU, with itself as the only program. It needs
// mmdebstrap, cpio and QEMU, and takes about an hour.
//
// It also writes the list of the parameters that the kernel changes along with a written one, which revert needs.
//
//	go run ./internal/e2e/kernels policy/kernels/catalogue.gz internal/host/cascades.txt
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	if os.Getpid() == 1 {
		guest()
		return
	}
	err := fmt.Errorf("usage: %s CATALOGUE CASCADES", os.Args[0])
	if len(os.Args) == 3 {
		err = record(os.Args[1], os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}
}

// catalogue maps each line of the file, a letter and a name, to the types of a parameter.
type catalogue map[string]map[string]bool

func (c catalogue) add(line, typ string) {
	if c[line] == nil {
		c[line] = map[string]bool{}
	}
	c[line][typ] = true
}

func record(to, cascades string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Hour)
	defer cancel()
	dir, err := os.MkdirTemp("", "kernels-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := catalogue{}
	for _, key := range slow() {
		c.add("x "+key, "")
	}
	for _, suite := range []string{"bullseye", "bookworm", "trixie"} {
		tree := filepath.Join(dir, suite)
		if _, err := run(ctx, "mmdebstrap", "--mode=root", "--variant=extract", "--quiet", "--include=linux-image-amd64,linux-image-cloud-amd64",
			suite, tree, "deb http://deb.debian.org/debian "+suite+" main",
			"deb http://deb.debian.org/debian-security "+suite+"-security main"); err != nil {
			return err
		}
		kernels, err := filepath.Glob(tree + "/boot/vmlinuz-*")
		if err != nil || len(kernels) == 0 {
			return fmt.Errorf("%s contains no kernel: %v", tree, err)
		}
		for _, k := range kernels {
			release := strings.TrimPrefix(filepath.Base(k), "vmlinuz-")
			if err := c.addKernel(ctx, tree, release, filepath.Join(dir, release)); err != nil {
				return fmt.Errorf("%s: %w", release, err)
			}
		}
		if err := os.RemoveAll(tree); err != nil {
			return err
		}
	}
	if err := c.writeCascades(cascades); err != nil {
		return err
	}
	return c.write(to)
}

// addKernel adds one kernel to the catalogue.
func (c catalogue) addKernel(ctx context.Context, tree, release, scratch string) error {
	base := tree
	if _, err := os.Stat(filepath.Join(base, "lib/modules", release)); err != nil {
		base = filepath.Join(tree, "usr") // since trixie
	}
	modules := filepath.Join(base, "lib/modules", release)
	if _, err := run(ctx, "depmod", "-b", base, release); err != nil {
		return err
	}
	c.add("r "+release, "")
	if tried(release) {
		c.add("p "+release, "")
	}
	for _, index := range []string{"modules.dep", "modules.builtin"} {
		text, err := os.ReadFile(filepath.Join(modules, index))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
			c.add("m "+moduleName(file), "")
		}
	}
	alias := regexp.MustCompile(`rtnl-link-([a-z0-9_.-]+)`)
	for _, index := range []string{"modules.alias", "modules.builtin.modinfo"} {
		text, err := os.ReadFile(filepath.Join(modules, index))
		if err != nil {
			return err
		}
		for _, m := range alias.FindAllSubmatch(text, -1) {
			c.add("k "+string(m[1]), "")
		}
	}
	needed, err := os.ReadFile(filepath.Join(modules, "modules.dep"))
	if err != nil {
		return err
	}
	var lines []string
	for after := ""; ; {
		more, last, err := boot(ctx, modules, filepath.Join(tree, "boot/vmlinuz-"+release), scratch, after, c.deadly())
		if err != nil {
			return err
		}
		lines = append(lines, more...)
		if last == "" {
			break
		}
		fmt.Printf("%s: %s takes the machine down\n", release, last)
		lines = append(lines, "v "+last+" x")
		c.add("x "+last, "")
		after = last
	}
	for _, key := range c.deadly() {
		has := func(l string) bool { return strings.HasPrefix(l, "s "+key+" ") }
		if line := "v " + key + " x"; !slices.Contains(lines, line) && slices.ContainsFunc(lines, has) {
			lines = append(lines, line)
		}
	}
	for _, line := range lines {
		switch kind, rest, _ := strings.Cut(line, " "); kind {
		case "s":
			key, typ, _ := strings.Cut(rest, " ")
			c.add("s "+key, typ)
		case "o":
			c.add(line, "")
		case "v":
			key, domain, _ := strings.Cut(rest, " ")
			c.addDomain(key, domain, release)
		case "b":
			key, module, _ := strings.Cut(rest, " ")
			c.add("b "+key, module)
		case "n":
			c.add(line, "")
		case "c":
			key, other, _ := strings.Cut(rest, " ")
			c.add("c "+key, other)
			if !strings.Contains(key+other, "/conf/") && !strings.Contains(key+other, "/neigh/") { // one of two units: the other way round too
				c.add("c "+other, key)
			}
		case "t":
		default:
			fmt.Printf("%s: %s\n", release, line)
		}
	}
	for line := range strings.Lines(string(needed)) {
		file, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		for n := range strings.FieldsSeq(rest) {
			if slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "b ") && strings.HasSuffix(l, " "+moduleName(n)) }) {
				lines = append(lines, "d "+moduleName(file)+" "+moduleName(n))
				c.add("d "+moduleName(file), moduleName(n))
			}
		}
	}
	fmt.Printf("%s: %d lines recorded\n", release, len(lines))
	return nil
}

func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// deadly returns the parameters for which a value has taken a machine down.
func (c catalogue) deadly() (keys []string) {
	for _, line := range slices.Sorted(maps.Keys(c)) {
		if key, is := strings.CutPrefix(line, "x "); is {
			keys = append(keys, key)
		}
	}
	return keys
}

// boot runs the kernel with the modules that register parameters, and returns the lines that the guest reports. It tries values only of
// parameters after the given one, and not of the deadly ones. If the machine goes down while it tries a parameter, that one is last.
func boot(ctx context.Context, modules, kernel, dir, after string, deadly []string) (lines []string, last string, err error) {
	defer os.RemoveAll(dir)
	if err := os.MkdirAll(dir+"/modules", 0o755); err != nil {
		return nil, "", err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	if _, err := run(ctx, "cp", self, dir+"/init"); err != nil {
		return nil, "", err
	}
	names, err := copyModules(ctx, modules, dir+"/modules")
	if err != nil {
		return nil, "", err
	}
	files := map[string]string{"list": strings.Join(names, "\n"), "after": after, "deadly": strings.Join(deadly, "\n")}
	if tried(filepath.Base(kernel)) {
		files["try"] = ""
	}
	for file, text := range files {
		if err := os.WriteFile(dir+"/"+file, []byte(text), 0o644); err != nil {
			return nil, "", err
		}
	}
	if _, err := run(ctx, "sh", "-euc", `cd "$1"; find . ! -name initrd | cpio --quiet -o -H newc >"$1/initrd"`, "sh", dir); err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	out, err := run(ctx, "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-m", "1024", "-nographic", "-no-reboot", "-nic", "none",
		"-kernel", kernel, "-initrd", dir+"/initrd", "-append", "console=ttyS0 quiet loglevel=0 panic=-1 edd=off rdinit=/init")
	if err != nil {
		return nil, "", fmt.Errorf("%w\n%s", err, out)
	}
	for line := range strings.Lines(out) {
		if _, rest, ok := strings.Cut(line, mark); ok {
			rest = strings.TrimSpace(rest)
			switch key, tries := strings.CutPrefix(rest, "t "); {
			case tries:
				last = key
			case strings.HasPrefix(rest, "v "+last+" "):
				last = ""
			}
			lines = append(lines, rest)
		}
	}
	if last == "" && (len(lines) == 0 || lines[len(lines)-1] != "end") {
		return nil, "", fmt.Errorf("the guest did not finish:\n%s", out)
	}
	return slices.DeleteFunc(lines, func(l string) bool { return l == "end" }), last, nil
}

// copyModules copies the modules that register parameters and their dependencies. It returns the
// names of the files, each after its dependencies.
func copyModules(ctx context.Context, modules, to string) ([]string, error) {
	text, err := os.ReadFile(modules + "/modules.dep")
	if err != nil {
		return nil, err
	}
	needs := map[string][]string{}
	var candidates []string
	place := regexp.MustCompile(`^kernel/(net|fs|drivers/(char|cdrom|md|scsi|parport|net/bonding|net/vrf))`)
	for line := range strings.Lines(string(text)) {
		file, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		needs[file] = strings.Fields(rest)
		if place.MatchString(file) {
			candidates = append(candidates, file)
		}
	}
	var names []string
	var add func(file string) error
	add = func(file string) error {
		name := filepath.Base(strings.TrimSuffix(file, ".xz"))
		if slices.Contains(names, name) {
			return nil
		}
		for _, n := range needs[file] {
			if err := add(n); err != nil {
				return err
			}
		}
		names = append(names, name)
		content, err := readModule(ctx, filepath.Join(modules, file))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), content, 0o644)
	}
	for file := range needs {
		if moduleName(file) == "crc32c_generic" { // libcrc32c requests it by another name
			if err := add(file); err != nil {
				return nil, err
			}
		}
	}
	for _, file := range candidates {
		b, err := readModule(ctx, filepath.Join(modules, file))
		if err != nil {
			return nil, err
		}
		if bytes.Contains(b, []byte("register_sysctl")) || bytes.Contains(b, []byte("register_net_sysctl")) {
			if err := add(file); err != nil {
				return nil, err
			}
		}
	}
	return names, nil
}

func readModule(ctx context.Context, file string) ([]byte, error) {
	if !strings.HasSuffix(file, ".xz") {
		return os.ReadFile(file)
	}
	out, err := run(ctx, "xz", "-dc", file)
	return []byte(out), err
}

// addDomain adds the domain of a parameter on one kernel.
func (c catalogue) addDomain(key, domain, release string) {
	c.add("v "+key+" "+strings.ReplaceAll(domain, " ", ";"), release)
}

// writeCascades moves the cascades to a file: on each line a parameter and those that change with it.
func (c catalogue) writeCascades(to string) error {
	var b bytes.Buffer
	for _, line := range slices.Sorted(maps.Keys(c)) {
		if key, is := strings.CutPrefix(line, "c "); is {
			fmt.Fprintln(&b, key, strings.Join(slices.Sorted(maps.Keys(c[line])), " "))
			delete(c, line)
		}
	}
	return os.WriteFile(to, b.Bytes(), 0o644)
}

// write writes the catalogue in sorted order, so that two recordings can be compared.
func (c catalogue) write(to string) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	var releases []string
	for line := range c {
		if release, is := strings.CutPrefix(line, "p "); is {
			releases = append(releases, release)
		}
	}
	slices.Sort(releases)
	for _, line := range slices.Sorted(maps.Keys(c)) {
		types := slices.Sorted(maps.Keys(c[line]))
		if strings.HasPrefix(line, "v ") { // the kernels by their numbers
			var mask strings.Builder
			for i, release := range releases {
				if c[line][release] {
					mask.WriteString(strconv.Itoa(i))
				}
			}
			types = []string{mask.String()}
		}
		if slices.Contains(types, "-") {
			types = []string{"-"}
		}
		fmt.Fprintln(z, strings.TrimSpace(line+" "+strings.Join(types, ",")))
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, b.Bytes(), 0o644)
}

func run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", name, err, stderr.Bytes())
	}
	return string(out), err
}

// tried reports whether values are tried on this kernel. Those for clouds have the same sources.
func tried(release string) bool { return !strings.Contains(release, "cloud") }

// slow returns the parameters that are never tried: a large value takes all memory, or minutes in an emulated machine.
func slow() []string {
	return []string{
		"kernel/stack_tracer_enabled", "kernel/ftrace_enabled", "net/core/rps_sock_flow_entries", "vm/min_free_kbytes", "vm/nr_hugepages",
		"vm/nr_hugepages_mempolicy",
	}
}
