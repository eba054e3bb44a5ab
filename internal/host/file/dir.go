package file

import (
	"errors"
	"fmt"
	"os"
)

// Named is one file of a directory.
type Named struct {
	Name string // with its directory
	Text []byte
}

// maxTogether is what the files of one directory may have together, in bytes.
const maxTogether = 64 << 20

// TooMuch returns an error where files have more bytes together than the most.
func TooMuch(where string, total, most int) error {
	if total <= most {
		return nil
	}
	return fmt.Errorf("the files of %s are larger than %d bytes together", where, most)
}

// wholeTries bounds how often a directory may be replaced while it is read.
const wholeTries = 100

// ReadDir reads the files of a directory whose names want accepts, in the order that
// names returns. Installations replace directories as a whole: if another directory
// takes this one's place meanwhile, ReadDir begins again, so that all files are of
// one directory. open may be nil for a directory that nobody replaces.
func ReadDir(dir string, open func() (*os.File, error), names func(dir string) ([]string, error), want func(name string) bool,
	read func(name string) ([]byte, error)) ([]Named, error) {
	once := func() ([]Named, error) {
		all, err := names(dir)
		var files []Named
		total := 0
		for _, n := range all {
			if err != nil || !want(n) {
				continue
			}
			f := Named{Name: dir + "/" + n}
			if f.Text, err = read(f.Name); err == nil {
				total += len(f.Text)
				err = TooMuch(dir, total, maxTogether)
			}
			files = append(files, f)
		}
		return files, err
	}
	if open == nil {
		return once()
	}
	for range wholeTries {
		before, err := open()
		if err != nil {
			return nil, err
		}
		files, readErr := once()
		same, err := isStill(before, open)
		before.Close() // not earlier: its inode number must not be used again
		if same || err != nil {
			return files, errors.Join(readErr, err)
		}
	}
	return nil, fmt.Errorf("%s is replaced again and again while it is read", dir)
}

// isStill reports whether open opens the directory that before is.
func isStill(before *os.File, open func() (*os.File, error)) (bool, error) {
	now, err := open()
	if err != nil {
		return false, err
	}
	defer now.Close()
	a, err := before.Stat()
	if err != nil {
		return false, err
	}
	b, err := now.Stat()
	return err == nil && os.SameFile(a, b), err
}
