package units

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"nodegate/internal/host/tree"
)

// ownHead begins the files that install writes and can comment, and no other.
const headerStart = "# Written by `nodegate install`"

// lostGate returns the path of a gate that install wrote and the journal does not know, "" where there is none: the journal was
// lost, and with it what was there before.
func findLostGate(t Tree, j *journal) (string, error) {
	names, err := t.Names(unitDir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for _, n := range names {
		p := unitDir + "/" + n + "/10-nodegate.conf"
		if !strings.HasSuffix(n, ".d") || j.find(p) != nil {
			continue
		}
		// A folder that leads out of the root, or is none, is not one that install wrote to.
		if now, err := t.Stat(p); err != nil || now.Type != tree.File {
			continue
		}
		text, err := t.Read(p)
		if err != nil {
			return "", err
		}
		if bytes.HasPrefix(text, []byte(headerStart)) {
			return p, nil
		}
	}
	return "", nil
}

// errLost returns an error where an installation is there that has no journal: nobody can take it back.
func checkJournalLost(t Tree) error {
	j, err := readJournal(t)
	if err != nil || len(j.Entries) > 0 {
		return err
	}
	gate, err := findLostGate(t, j)
	if err == nil && gate != "" {
		err = fmt.Errorf("%s is of an installation whose journal %s is lost: run `nodegate install` first, which makes it anew, then uninstall",
			t.Full(gate), t.Full(JournalFile))
	}
	return err
}

// isLeft reports whether what is at a file's path, and is what is wanted there, is of an installation whose journal was lost: it was
// not there before. What has no head of ours may be anybody's, except beside a gate of ours.
func (s *step) isLeftover(f File) bool {
	return s.lost || bytes.HasPrefix(f.Content, []byte(headerStart))
}
