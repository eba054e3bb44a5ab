package host

import (
	"nodegate/internal/host/config"
	"nodegate/internal/host/file"
)

// Source is the files of a machine as they are. Checks do not have it: they read what Shown makes of it.
type Source interface {
	ReadFile(name string) (config.Text, error)
	Tail(name string) (config.Text, error)
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
	return s.filter.Show(s.kind, name, text, false), err
}

func (s shownFiles) Tail(name string) ([]byte, error) {
	text, err := s.Source.Tail(s.filter.Reveal(name))
	return s.filter.Show(s.kind, name, text, false), err
}

func (s shownFiles) ReadDir(name string) ([]string, error) {
	return s.Source.ReadDir(s.filter.Reveal(name))
}

func (s shownFiles) ReadLink(name string) (string, error) {
	return s.Source.ReadLink(s.filter.Reveal(name))
}

func (s shownFiles) Exists(name string) (bool, error) {
	return s.Source.Exists(s.filter.Reveal(name))
}

func (s shownFiles) Filled(name string) (bool, error) { return config.Filled(s, name) }

func (s shownFiles) Head(name string) (file.Head, error) { return s.Source.Head(s.filter.Reveal(name)) }

func (s shownFiles) Space(name string) (Space, error) {
	return s.Source.Space(s.filter.Reveal(name))
}
