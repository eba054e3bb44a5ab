package file

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes a file of this machine completely or not at all.
func Replace(name string, content []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".nodegate-new-")
	if wrong := (*os.PathError)(nil); errors.As(err, &wrong) {
		wrong.Path = name // the name that the caller knows
	}
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
