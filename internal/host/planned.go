package host

import (
	"io/fs"
	"path"
	"slices"
	"syscall"

	"nodegate/internal/host/file"
)

// PlannedFile is a file that does not exist yet: its content, or the target of a symbolic link.
type PlannedFile struct {
	Content []byte
	Target  string
	Mode    fs.FileMode
}

// With returns the host as it will be with planned files.
func (h *Host) With(files map[string]PlannedFile) *Host {
	planned := *h
	planned.opened = nil // h closes them
	planned.asked, planned.memo = nil, memo{}
	planned.Files = plannedFiles{h.Files, files}
	return &planned
}

type plannedFiles struct {
	Files
	planned map[string]PlannedFile
}

func (p plannedFiles) ReadFile(name string) ([]byte, error) {
	f, is := p.planned[name]
	switch {
	case !is:
		return p.Files.ReadFile(name)
	case f.Target != "":
		return p.ReadFile(f.Target)
	}
	return f.Content, nil
}

func (p plannedFiles) ReadDir(name string) ([]string, error) {
	names, err := p.Files.ReadDir(name)
	for at := range p.planned {
		for ; at != "/" && at != "."; at = path.Dir(at) {
			if path.Dir(at) == path.Clean(name) && !slices.Contains(names, path.Base(at)) {
				names, err = append(names, path.Base(at)), nil
			}
		}
	}
	slices.Sort(names)
	return names, err
}

func (p plannedFiles) ReadLink(name string) (string, error) {
	f, is := p.planned[name]
	switch {
	case !is:
		return p.Files.ReadLink(name)
	case f.Target != "":
		return f.Target, nil
	}
	return "", &fs.PathError{Op: "readlink", Path: name, Err: syscall.EINVAL}
}

func (p plannedFiles) Exists(name string) (bool, error) {
	if _, is := p.planned[name]; is {
		return true, nil
	}
	return p.Files.Exists(name)
}

func (p plannedFiles) Head(name string) (file.Head, error) {
	f, is := p.planned[name]
	switch {
	case !is:
		return p.Files.Head(name)
	case f.Target != "":
		return p.Head(f.Target)
	}
	return file.Head{Mode: f.Mode, Start: f.Content[:min(len(f.Content), 4<<10)]}, nil
}
