package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// program is a row of the list.
type program struct {
	name   string
	debian string
	fedora string
	onlyCI bool // its package starts a service or is large
}

func parsePrograms(list string) []program {
	var out []program
	for line := range strings.Lines(list) {
		line, _, _ = strings.Cut(line, "#")
		if w := strings.Fields(line); len(w) >= 3 {
			out = append(out, program{w[0], w[1], w[2], len(w) > 3})
		}
	}
	return out
}

func missingPrograms(programs []program) []program {
	return slices.DeleteFunc(slices.Clone(programs), func(p program) bool {
		_, err := exec.LookPath(p.name)
		return err == nil
	})
}

func names(programs []program) []string {
	var out []string
	for _, p := range programs {
		out = append(out, p.name)
	}
	return out
}

// manager is a package manager and its commands.
type manager struct {
	name     string
	update   []string
	add      []string
	packages func(missing []program, inCI bool) []string
}

// findManager returns the package manager of this machine.
func findManager() (manager, bool) {
	for _, m := range []manager{
		{
			"apt-get",
			[]string{"apt-get", "update", "-qq", "-o", "Acquire::http::Timeout=20"},
			[]string{"apt-get", "install", "-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=60"},
			packagesBy(func(p program) string { return p.debian }),
		},
		{
			"dnf", nil, []string{"dnf", "install", "-y", "-q", "--setopt=install_weak_deps=False"},
			packagesBy(func(p program) string { return p.fedora }),
		},
	} {
		if _, err := exec.LookPath(m.name); err == nil {
			return m, true
		}
	}
	return manager{}, false
}

// packagesBy returns a function that selects the packages to install, each once.
func packagesBy(packageOf func(program) string) func(missing []program, inCI bool) []string {
	return func(missing []program, inCI bool) []string {
		var out []string
		for _, p := range missing {
			if !p.onlyCI || inCI {
				out = append(out, packageOf(p))
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
}

// install installs the packages. If that fails, it tries each alone, because one package that this release lacks
// must not prevent the others. The tests of a program that is still missing are skipped, so a failure is only printed.
func (m manager) install(ctx context.Context, packages []string) {
	if len(m.update) > 0 {
		if err := quietly(ctx, m.update); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := quietly(ctx, append(m.add, packages...)); err == nil {
		return
	}
	for _, name := range packages {
		if err := quietly(ctx, append(m.add, name)); err != nil {
			fmt.Println(err)
		}
	}
}

// quietly runs a command without questions. Its error contains the lines that the package manager marks as errors, or the last line.
func quietly(ctx context.Context, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		marked := slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
			return !strings.HasPrefix(line, "E: ") && !strings.HasPrefix(line, "Error: ")
		})
		if len(marked) == 0 {
			marked = lines[len(lines)-1:]
		}
		return fmt.Errorf("%s failed: %w: %s", strings.Join(command, " "), err, strings.Join(marked[:min(3, len(marked))], "; "))
	}
	return nil
}
