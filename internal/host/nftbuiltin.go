package host

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"

	"nodegate/internal/host/program"
)

// mayQueryNFTables reports whether nf_tables is loaded or part of the kernel, or nft is installed, which queries it
// whenever it runs: a query loads the module.
func mayQueryNFTables() bool {
	_, err := program.Find("nft")
	return err == nil || hasNFTables("/")
}

// hasNFTables reports whether the running kernel has nf_tables without loading a module. A part of the kernel has no
// directory in /sys/module unless it has parameters, and nf_tables has none.
func hasNFTables(root string) bool {
	read := func(path string) (string, bool) {
		text, err := os.ReadFile(filepath.Join(root, path))
		return string(text), err == nil
	}
	if _, err := os.Stat(filepath.Join(root, "sys/module/nf_tables")); err == nil {
		return true
	}
	if _, modules := read("proc/modules"); !modules { // a kernel without modules
		return true
	}
	release, _ := read("proc/sys/kernel/osrelease")
	for _, dir := range []string{"lib/modules", "usr/lib/modules"} {
		if list, ok := read(filepath.Join(dir, strings.TrimSpace(release), "modules.builtin")); ok {
			return strings.Contains(list, "/nf_tables.ko")
		}
	}
	return hasSymbol(filepath.Join(root, "proc/kallsyms"), "nf_tables_newtable") // a container without /lib/modules
}

// hasSymbol reports whether a list of kernel symbols has a function of the kernel itself.
func hasSymbol(kallsyms, name string) bool {
	f, err := os.Open(kallsyms)
	if err != nil {
		return false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[2] == name { // a module's has a fourth field
			return true
		}
	}
	return false
}
