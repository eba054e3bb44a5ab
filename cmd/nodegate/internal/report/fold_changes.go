package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host/file"
)

// The files of the older lines of ChangesFile, and of the lines that are being folded into them.
const (
	olderChanges  = ChangesFile + ".1"
	movingChanges = ChangesFile + ".2"
)

// foldChanges makes room in ChangesFile: it merges the lines into the older ones, with one write for each setting. It never drops the
// original value of a setting. Without folding, a gate that is held all night by one parameter, which the kernel resets each time, would
// write the same line thousands of times. An interruption loses no line; at most it duplicates some. The caller holds the lock.
func foldChanges() error {
	if _, err := os.Lstat(movingChanges); errors.Is(err, fs.ErrNotExist) {
		if err := os.Rename(ChangesFile, movingChanges); err != nil {
			return err
		}
	}
	changes, _, err := readChanges(olderChanges, movingChanges)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, c := range mergeChanges(changes, targetExists) {
		line, err := json.Marshal(c)
		if err != nil {
			return err
		}
		if b.Len()+len(line) < maxChanges {
			b.Write(append(line, '\n'))
		}
	}
	if err := file.Replace(olderChanges, b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Remove(movingChanges)
}

// mergeChanges returns the changes, the oldest first, with one write for each setting: from its first value to its last one.
// It leaves out changes that cannot be reverted: those whose link is gone, and those without a write.
func mergeChanges(changes []AppliedChange, there func(Write) bool) []AppliedChange {
	type place struct{ change, write int }
	known := map[string]place{}
	var all []AppliedChange
	for _, c := range changes {
		writes := c.Writes
		c.Writes = nil
		for _, w := range writes {
			setting := w.setting()
			if at, is := known[setting]; is {
				in := c.Writes
				if at.change < len(all) {
					in = all[at.change].Writes
				}
				in[at.write].To, in[at.write].Along = w.To, w.Along
				continue
			}
			if there(w) {
				known[setting] = place{len(all), len(c.Writes)}
				c.Writes = append(c.Writes, w)
			}
		}
		if c.Writes != nil {
			all = append(all, c)
		}
	}
	return all
}

// setting returns a name for the written setting; the name of a list includes its members.
func (w Write) setting() string {
	name := string(w.Kind) + " " + w.Target
	if w.Kind.IsList() {
		for entry := range strings.SplitSeq(w.To, ", ") {
			feature, _, _ := strings.Cut(entry, "=")
			name += " " + feature
		}
	}
	return name
}

func targetExists(w Write) bool {
	name := "/proc/sys/net/ipv4/conf/" + w.Target // exists for every link
	switch w.Kind {
	case checks.LoadModule, checks.DeleteAddress:
		return true
	case checks.SetSysfs:
		name = w.Target
	case checks.SetSysctl:
		name = "/proc/sys/" + w.Target
	}
	_, err := os.Lstat(name)
	return !errors.Is(err, fs.ErrNotExist)
}
