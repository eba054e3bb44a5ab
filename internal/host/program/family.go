package program

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// killMarked ends every process that has a variable in its environment: a program's descendants, also those that left its session.
func killMarked(mark string) {
	const rounds = 5 // a process may fork while others are killed
	for range rounds {
		found := false
		names, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, name := range names {
			environment, _ := os.ReadFile(name)
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err == nil && pid != os.Getpid() && bytes.Contains(environment, []byte(mark)) {
				found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
			}
		}
		if !found {
			return
		}
	}
}
