package host

import (
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
func Shown(source Source) Files { return shownFiles{Source: source} }

type shownFiles struct {
	Source
	kind config.Kind
}

// As returns files whose content is of a kind.
func (s shownFiles) As(kind config.Kind) config.Files {
	s.kind = kind
	return s
}

func (s shownFiles) ReadFile(name string) ([]byte, error) {
	text, err := s.Source.ReadFile(name)
	return config.Show(s.kind, name, text, false), err
}

func (s shownFiles) Filled(name string) (bool, error) { return config.Filled(s, name) }
