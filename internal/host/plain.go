package host

import (
	"io/fs"
	"strings"

	"nodegate/internal/host/config"
)

// Source is the files of a machine, with their permissions.
type Source interface {
	places
	ReadFile(name string) ([]byte, fs.FileMode, error)
}

// Marked returns files that remember the texts that not every user may read. Plain leaves their words out of a conclusion.
func Marked(source Source) Files { return markedFiles{source, new(config.Withheld)} }

type markedFiles struct {
	Source
	private *config.Withheld
}

// ReadFile does not return a parameter that may be a key: it is not made of numbers, and not every user may read it.
func (m markedFiles) ReadFile(name string) ([]byte, error) {
	text, mode, err := m.Source.ReadFile(name)
	_, kept := config.Kept(name, nil)
	isParameter := strings.HasPrefix(name, "/proc/sys/") || strings.HasPrefix(name, sysfsRoot)
	switch isPrivate := mode.Perm()&0o004 == 0 && len(text) > 0; {
	case err != nil:
	case !kept && isPrivate:
		m.private.Add(name, string(text))
	case !kept:
		m.private.Add(name, "")
	case isPrivate && isParameter && strings.Trim(string(text), "-0123456789 \t\n") != "":
		return []byte(config.LeftOut), nil
	}
	return text, err
}

func (m markedFiles) Filled(name string) (bool, error) { return config.Filled(m, name) }

// copiedFiles are files that a program of another user may read.
type copiedFiles struct{ Files }

func (c copiedFiles) ReadFile(name string) ([]byte, error) {
	text, err := c.Files.ReadFile(name)
	return words(c.Files).Copy(name, text), err
}

// words returns the texts that must not leave: of the files that not every user may read, in a recording of those that people write.
func words(files Files) *config.Withheld {
	switch f := files.(type) {
	case markedFiles:
		return f.private
	case askedFiles:
		if f.m.keeps {
			return f.m.written
		}
		return words(f.Files)
	}
	return nil
}

// Plain returns a conclusion and its error without words that must not leave, except those in known. The texts of a conclusion are itself,
// or what its method Texts returns.
func Plain[T any](h *Host, known string, v T, err error) (T, error) {
	w := words(h.Files)
	var texts []*string
	switch v := any(&v).(type) {
	case *string:
		texts = append(texts, v)
	case interface{ Texts() []*string }:
		texts = v.Texts()
	}
	for _, text := range texts {
		*text = w.Plain(*text, known)
	}
	if err != nil {
		err = plainError{w.Plain(err.Error(), known), err}
	}
	return v, err
}

type plainError struct {
	said string
	error
}

func (e plainError) Error() string { return e.said }
func (e plainError) Unwrap() error { return e.error }
