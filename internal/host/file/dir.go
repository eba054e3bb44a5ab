package file

import (
	"errors"
	"fmt"
	"os"
)

// Named is one file in a directory.
type Named struct {
	Name string // including its directory
	Text []byte
}

// maxTogether bounds the total size of one directory's files, in bytes.
const maxTogether = 64 << 20

// TooMuch returns an error if files have a total size of more than most bytes.
func TooMuch(where string, total, most int) error {
	if total <= most {
		return nil
	}
	return fmt.Errorf("the files of %s have more than %d bytes in total", where, most)
}

// wholeTries bounds how often a directory may be replaced while it is read.
const wholeTries = 100

// ReadDir reads the files in a directory whose names want accepts, in the order that names returns.
// Installers replace whole directories: if the directory is replaced during the call, ReadDir
// starts again, so that all files come from the same directory. open may be nil if the directory is
// never replaced.
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
		same, err := isSame(before, open)
		before.Close() // not earlier: its inode number must not be reused
		if same || err != nil {
			return files, errors.Join(readErr, err)
		}
	}
	return nil, fmt.Errorf("%s keeps being replaced while it is read", dir)
}

// isSame reports whether open still opens the directory before.
func isSame(before *os.File, open func() (*os.File, error)) (bool, error) {
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
