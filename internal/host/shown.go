package host

import (
	"errors"
	"io/fs"
	"strings"

	"nodegate/internal/host/config"
	"nodegate/internal/host/file"
)

// Source is the files of a machine as they are. Checks do not have it: they read what Shown makes of it.
type Source interface {
	ReadFile(name string) (config.Text, error)
	ReadDir(name string) ([]string, error)
	ReadLink(name string) (string, error)
	Exists(name string) (bool, error)
	Head(name string) (file.Head, error)
	Write(name string, data []byte) error
	Space(name string) (Space, error)
}

// Shown returns files without the values that only root may read, except in a shape without a place for a secret.
func Shown(source Source, filter *config.Filter) Files {
	return shownFiles{Source: source, filter: filter}
}

type shownFiles struct {
	Source
	filter *config.Filter
	kind   config.Kind
}

// As returns files whose content is of a kind.
func (s shownFiles) As(kind config.Kind) config.Files {
	s.kind = kind
	return s
}

func (s shownFiles) ReadFile(name string) ([]byte, error) {
	text, err := s.Source.ReadFile(s.filter.Reveal(name))
	return s.filter.Show(s.kind, name, text, false), named(name, err)
}

func (s shownFiles) ReadDir(name string) ([]string, error) {
	found, err := s.Source.ReadDir(s.filter.Reveal(name))
	return found, named(name, err)
}

func (s shownFiles) ReadLink(name string) (string, error) {
	found, err := s.Source.ReadLink(s.filter.Reveal(name))
	return found, named(name, err)
}

func (s shownFiles) Exists(name string) (bool, error) {
	found, err := s.Source.Exists(s.filter.Reveal(name))
	return found, named(name, err)
}

func (s shownFiles) Filled(name string) (bool, error) { return config.Filled(s, name) }

func (s shownFiles) Head(name string) (file.Head, error) {
	found, err := s.Source.Head(s.filter.Reveal(name))
	return found, named(name, err)
}

func (s shownFiles) Space(name string) (Space, error) {
	found, err := s.Source.Space(s.filter.Reveal(name))
	return found, named(name, err)
}

// named returns an error with the name by which the caller knows a file, which may stand for one that is hidden.
func named(name string, err error) error {
	if wrapped, is := errors.AsType[*fs.PathError](err); is && strings.Contains(name, config.Placeholder) {
		return &fs.PathError{Op: wrapped.Op, Path: name, Err: wrapped.Err}
	}
	return err
}
