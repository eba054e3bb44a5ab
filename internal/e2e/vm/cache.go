package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Cache is the folder that keeps base images between runs and holds the scratch folders of running ones.
// Several processes may use one Cache at a time.
type Cache struct{ Dir string }

// DefaultCache is $XDG_CACHE_HOME/nodegate/vm, or .cache/vm below the repository where that variable is unset.
func DefaultCache(repository string) Cache {
	if dir := os.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return Cache{filepath.Join(dir, "nodegate", "vm")}
	}
	return Cache{filepath.Join(repository, ".cache", "vm")}
}

// Scratch is a folder for disks and sockets that Close removes. One whose process was killed is removed by the next
// Cache.Scratch of anybody: a lock on the folder says whether its owner lives.
type Scratch struct {
	Dir  string
	lock *os.File
}

// Scratch makes a new scratch folder, and removes those left by the dead.
func (c Cache) Scratch() (*Scratch, error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the cache: %w", err)
	}
	// Making and locking a folder are two steps; nobody may sweep between them.
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
			return nil, fmt.Errorf("removing a dead run's folder: %w", err)
		}
	}
	dir, err := os.MkdirTemp(c.Dir, "run-")
	if err != nil {
		return nil, fmt.Errorf("making a scratch folder: %w", err)
	}
	held, err := Lock(dir, syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	return &Scratch{Dir: dir, lock: held}, nil
}

// Close removes the folder and what is in it.
func (s *Scratch) Close() error {
	return errors.Join(os.RemoveAll(s.Dir), s.lock.Close())
}

// removeTree is os.RemoveAll for trees that look like a machine's: it refuses where something is mounted below, because
// it would remove the mounted files.
func removeTree(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			return fmt.Errorf("%s is mounted: umount it", fields[1])
		}
	}
	return os.RemoveAll(dir)
}

// Lock takes an flock on a file (made when missing) or an existing folder; closing the returned file releases it,
// and so does the death of the process. Children do not inherit it.
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
