package xtables

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"nodegate/internal/host/program"
	"nodegate/internal/ruleset"
)

// Names returns the file in which the kernel lists the legacy backend's tables.
func Names(family string) string {
	if family == ruleset.IPv6 {
		return "/proc/thread-self/net/ip6_tables_names"
	}
	return "/proc/thread-self/net/ip_tables_names"
}

// Used returns false if the save program would read the same file, print nothing and exit.
func Used(family string) bool {
	names, err := os.ReadFile(Names(family))
	return len(names) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// SaveProgram returns the name of the program that prints the legacy backend's rules, for iptables
// or ip6tables. The program may be missing.
func SaveProgram(name string) string {
	plain, err := program.Find(name + "-save")
	if err != nil {
		return name + "-legacy-save"
	}
	if _, err := program.Find(name + "-nft-save"); err != nil {
		return name + "-save" // before 1.8 there is only one
	}
	file, err := filepath.EvalSymlinks(plain)
	if _, absent := program.Find(name + "-legacy-save"); absent != nil && err == nil && filepath.Base(file) == "xtables-legacy-multi" {
		return name + "-save"
	}
	return name + "-legacy-save"
}

// Unprinted returns an error if tables of the legacy backend contain rules of kube-proxy, but the
// program that would print them is missing. Tables without kube-proxy's chains, which the iptables
// of a container may have created, do not matter.
func Unprinted(family, save string) error {
	if !Used(family) {
		return nil
	}
	names, err := os.ReadFile(Names(family))
	for _, table := range strings.Fields(string(names)) {
		t, unread := Read(family == ruleset.IPv6, table)
		err = errors.Join(err, unread)
		if unread == nil && bytes.Contains(t.Blob, []byte("KUBE-S")) { // KUBE-SERVICES and the chains to which it leads
			return fmt.Errorf("table %s of the legacy backend (%s) has rules of kube-proxy, but %s is not installed; install the package "+
				"iptables, or iptables-legacy on Fedora and its derivatives", table, family, save)
		}
	}
	if err != nil {
		return fmt.Errorf("the legacy backend (%s) may have rules of kube-proxy, but %s is not installed: %w", family, save, err)
	}
	return nil
}
