package units

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"nodegate/internal/host/tree"
)

// journal lists everything that uninstall must restore or remove. It is flushed to disk before the
// first file that it names is changed.
type journal struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Entries    []entry  `json:"entries"`
	Dirs       []string `json:"dirs"` // created directories, parents first
}

// entry records one path: the file that existed before the first install, and every file that
// nodegate may have written since (two while a change is in progress). The content of a replaced
// file is in backupDir, named by its checksum.
type entry struct {
	Path   string       `json:"path"`
	Before tree.Entry   `json:"before"`
	Wrote  []tree.Entry `json:"wrote"`
}

const journalVersion, journalKind = "nodegate/v1", "Journal"

// readJournal returns an empty journal if nothing is installed.
func readJournal(t Tree) (*journal, error) {
	j := &journal{APIVersion: journalVersion, Kind: journalKind}
	n, err := t.Stat(JournalFile)
	if err != nil || n.Type == tree.Absent {
		return j, err
	}
	b, err := t.Read(JournalFile)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, j); err != nil {
		return nil, fmt.Errorf("%s: invalid journal: %w; restore it from a backup, "+
			"or remove it and the files that `nodegate install --dry-run` lists", t.Full(JournalFile), err)
	}
	if j.APIVersion != journalVersion || j.Kind != journalKind {
		return nil, fmt.Errorf("%s: written by another version of nodegate (%s %s); use that version",
			t.Full(JournalFile), j.APIVersion, j.Kind)
	}
	return j, nil
}

func (j *journal) write(t Tree) error {
	b, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	if err := t.StageFile(JournalFile, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return t.Commit(JournalFile)
}

func (j *journal) find(p string) *entry {
	if i := slices.IndexFunc(j.Entries, func(e entry) bool { return e.Path == p }); i >= 0 {
		return &j.Entries[i]
	}
	return nil
}

// isOurs reports whether the file at the entry's path is one that nodegate wrote or that existed
// before the first install.
func (e *entry) isOurs(now tree.Entry) bool {
	return sameNode(now, e.Before) || slices.ContainsFunc(e.Wrote, func(n tree.Entry) bool { return sameNode(now, n) })
}

// sameNode compares the type, mode and content of two files. It ignores the owner, because packaging
// tools change the owners of whole trees.
func sameNode(a, b tree.Entry) bool {
	if a.Type != b.Type || a.Sum != b.Sum || a.Target != b.Target {
		return false
	}
	return a.Type != tree.File || a.Mode == b.Mode
}

// backup saves the content of a file that is about to be replaced.
func backup(t Tree, p string, n tree.Entry) error {
	if n.Type != tree.File {
		return nil
	}
	content, err := t.Read(p)
	if err != nil {
		return err
	}
	to := backupDir + "/" + n.Sum
	if err := t.StageFile(to, content, 0o600); err != nil {
		return err
	}
	return t.Commit(to)
}

// restore restores the file that existed at the entry's path: content, mode, owner and modification
// time.
func (e *entry) restore(t Tree) error {
	if e.Before.Type == tree.Absent {
		return errors.Join(t.Unstage(e.Path), t.Remove(e.Path))
	}
	missing, err := missingDirs(t, e.Path) // the directory may have been removed
	if err == nil {
		err = makeDirs(t, missing, 0o755)
	}
	switch {
	case err != nil:
	case e.Before.Type == tree.SymLink:
		err = t.StageLink(e.Path, e.Before.Target)
	default:
		var content []byte
		if content, err = t.Read(backupDir + "/" + e.Before.Sum); err == nil {
			err = t.StageFile(e.Path, content, e.Before.Mode)
		}
	}
	if err == nil {
		err = t.Own(e.Path, e.Before)
	}
	if err == nil {
		err = t.Commit(e.Path)
	}
	return err
}
