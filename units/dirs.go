package units

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"syscall"

	"nodegate/internal/host/tree"
)

// missingDirs returns the missing directories above p, parents first. It returns an error if one
// of them is a file.
func missingDirs(t Tree, p string) ([]string, error) {
	var missing []string
	for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
		n, err := t.Stat(dir)
		if err != nil {
			return nil, err
		}
		switch n.Type {
		case tree.Absent:
			missing = append([]string{dir}, missing...)
		case tree.Dir, tree.SymLink:
			return missing, nil
		default:
			return nil, fmt.Errorf("%s is in the way: it is not a directory; move it", t.Full(dir))
		}
	}
	return missing, nil
}

func makeDirs(t Tree, dirs []string, mode fs.FileMode) error {
	for _, d := range dirs {
		if err := t.Mkdir(d, mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// removeDirs removes directories, children first. It keeps directories that are not empty or are
// mount points, as in a container. After an error some may still be there.
func removeDirs(t Tree, dirs []string) error {
	var errs []error
	for _, d := range slices.Backward(dirs) {
		n, err := t.Stat(d)
		var names []string
		if err == nil && n.Type == tree.Dir {
			names, err = t.Names(d)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		if err != nil || n.Type != tree.Dir || len(names) > 0 {
			continue
		}
		// Another program may create a file in it at the same time.
		if err := t.Remove(d); err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EBUSY) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
