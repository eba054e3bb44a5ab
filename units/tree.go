package units

import (
	"io/fs"

	"nodegate/internal/host"
)

// Tree is what an installation needs of a file tree; host.Tree documents what each
// method promises.
type Tree interface {
	Full(p string) string
	Stat(p string) (host.Node, error)
	Read(p string) ([]byte, error)
	Names(p string) ([]string, error)
	Lock(p string) (release func(), err error)
	Mkdir(p string, mode fs.FileMode) error
	StageFile(p string, content []byte, mode fs.FileMode) error
	StageLink(p, target string) error
	Own(p string, n host.Node) error
	Commit(p string) error
	Unstage(p string) error
	Remove(p string) error
}

var _ Tree = (*host.Tree)(nil)
