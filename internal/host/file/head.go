package file

import (
	"io"
	"io/fs"
	"os"
)

// Head is the type of a file and its beginning: enough to know whether the kernel can execute it.
type Head struct {
	Dir   bool        `json:"dir,omitempty"`
	Mode  fs.FileMode `json:"mode,omitempty"`  // its permissions
	Start []byte      `json:"start,omitempty"` // at most 4 KiB
}

// MayExecute reports whether root may execute a file with these permissions.
func (h Head) MayExecute() bool { return !h.Dir && h.Mode&0o111 != 0 }

// ReadHead reads the head of an open file, and closes it.
func ReadHead(f *os.File) (Head, error) {
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Head{}, err
	}
	h := Head{Dir: info.IsDir(), Mode: info.Mode().Perm()}
	if !info.Mode().IsRegular() {
		return h, nil
	}
	const most = 4 << 10
	h.Start, err = io.ReadAll(io.LimitReader(f, most))
	return h, err
}
