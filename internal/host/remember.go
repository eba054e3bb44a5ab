package host

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"nodegate/internal/host/program"
)

// Remember prepares a host for watch, which inspects repeatedly: checks may store state in Memory,
// and a program's version is remembered until its file changes. Starting kubelet for its version costs
// more than the rest of a round.
func (h *Host) Remember() {
	h.Memory = &Memory{}
	h.Kernel = rememberingKernel{h.Kernel, memo{Snapshot: &Snapshot{}}}
}

// versionTTL bounds the age of a remembered version: a wrapper script does not change when the program
// that it runs is replaced.
const versionTTL = 10 * time.Minute

type rememberingKernel struct {
	Kernel
	m memo
}

type datedVersion struct {
	text string
	at   time.Time
}

// Version remembers the output of a program, but no error.
func (k rememberingKernel) Version(ctx context.Context, name string, flags ...string) (string, error) {
	path, err := program.Find(name)
	info, unknown := os.Stat(path)
	if err != nil || unknown != nil {
		return k.Kernel.Version(ctx, name, flags...) // whose error is clearer
	}
	asked, file := false, info.Sys().(*syscall.Stat_t)
	read := func() (datedVersion, error) {
		asked = true
		text, err := k.Kernel.Version(ctx, name, flags...)
		return datedVersion{text, time.Now()}, err
	}
	// These change when a file is replaced or written to.
	key := fmt.Sprint(commandKey(name, flags), file.Dev, file.Ino, file.Size, file.Ctim, file.Mtim)
	said, err := ask(ctx, k.m, "", key, read)
	if !asked && (err != nil || time.Since(said.at) >= versionTTL) {
		k.m.again = true
		said, err = ask(ctx, k.m, "", key, read)
	}
	return said.text, err
}
