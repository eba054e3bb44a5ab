package units

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"nodegate/internal/host/tree"
)

// headerStart begins every file that install writes in a format with comments, and no other file.
const headerStart = "# Written by `nodegate install`"

// findLostGate returns the path of a gate that install wrote but that is not in the journal, or "". Such a gate means that the
// journal was lost, and with it the record of the previous files.
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
		// Install never writes through a link that leads out of the root, or below a file.
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

// checkJournalLost returns an error if an installation exists without a journal: it cannot be undone.
func checkJournalLost(t Tree) error {
	j, err := readJournal(t)
	if err != nil || len(j.Entries) > 0 {
		return err
	}
	gate, err := findLostGate(t, j)
	if err == nil && gate != "" {
		err = fmt.Errorf("%s belongs to an installation whose journal %s is lost: run `nodegate install` to create the journal again, "+
			"then `nodegate uninstall`",
			t.Full(gate), t.Full(JournalFile))
	}
	return err
}

// isLeftover reports whether a file that already has the wanted content is left from an installation whose journal was lost, so
// that it did not exist before nodegate. Files without nodegate's header may belong to another program, unless a gate of nodegate
// exists without a journal.
func (s *step) isLeftover(f File) bool {
	return s.lost || bytes.HasPrefix(f.Content, []byte(headerStart))
}
