package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Cache is the directory that keeps base images between runs, and the scratch directories of current runs. Several processes may use
// a Cache at the same time.
type Cache struct{ Dir string }

// DefaultCache is $XDG_CACHE_HOME/nodegate/vm, or .cache/vm in the repository if that variable is unset.
func DefaultCache(repository string) Cache {
	if dir := os.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return Cache{filepath.Join(dir, "nodegate", "vm")}
	}
	return Cache{filepath.Join(repository, ".cache", "vm")}
}

// Scratch is a directory for disks and sockets that Close removes. If its process was killed, the next call of Cache.Scratch by any
// process removes it: a lock on the directory shows whether its owner is alive.
type Scratch struct {
	Dir  string
	lock *os.File
}

// Scratch makes a new scratch directory, and removes the ones of dead processes.
func (c Cache) Scratch() (*Scratch, error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the cache: %w", err)
	}
	// Creating and locking a directory are two steps; no other process may clean up in between.
	guard, err := Lock(filepath.Join(c.Dir, "scratch.lock"), syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer guard.Close()
	left, err := filepath.Glob(filepath.Join(c.Dir, "run-*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range left {
		owner, err := Lock(dir, syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil {
			continue
		}
		err = removeTree(dir)
		owner.Close()
		if err != nil {
			return nil, fmt.Errorf("removing the directory of a dead run: %w", err)
		}
	}
	dir, err := os.MkdirTemp(c.Dir, "run-")
	if err != nil {
		return nil, fmt.Errorf("making a scratch directory: %w", err)
	}
	held, err := Lock(dir, syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	return &Scratch{Dir: dir, lock: held}, nil
}

// Close removes the directory and its content.
func (s *Scratch) Close() error {
	return errors.Join(os.RemoveAll(s.Dir), s.lock.Close())
}

// removeTree is os.RemoveAll for trees of machines. It refuses if a file system is mounted below the tree, because it would remove
// the mounted files.
func removeTree(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			return fmt.Errorf("%s is a mount point: run umount on it first", fields[1])
		}
	}
	return os.RemoveAll(dir)
}

// Lock takes an flock on a file, which it creates if necessary, or on an existing directory. Closing the returned file releases the
// lock, and so does the end of the process. Children do not inherit it.
func Lock(path string, how int) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	}
	if err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return f, nil
}
