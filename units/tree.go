package units

import (
	"io/fs"

	"nodegate/internal/host/tree"
)

// Tree is the part of tree.Tree that an installation needs. tree.Tree documents its methods.
type Tree interface {
	Full(p string) string
	Stat(p string) (tree.Entry, error)
	Read(p string) ([]byte, error)
	Names(p string) ([]string, error)
	Replaceable(p string) error
	Lock(p string) (release func() error, err error)
	Mkdir(p string, mode fs.FileMode) error
	StageFile(p string, content []byte, mode fs.FileMode) error
	StageLink(p, target string) error
	Own(p string, n tree.Entry) error
	Commit(p string) error
	Unstage(p string) error
	StageDir(p string) (copied string, err error)
	CommitDir(p string, names []string) error
	UnstageDir(p string) error
	Remove(p string) error
}

var _ Tree = (*tree.Tree)(nil)
