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

// Older lines than those of ChangesFile, and those that are being folded into them.
const (
	olderChanges  = ChangesFile + ".1"
	movingChanges = ChangesFile + ".2"
)

// foldChanges makes room in ChangesFile: its lines go to the older ones, which have one write for each setting. What a setting was before
// nodegate changed it first is never dropped: a gate that is held all night by one parameter, which the kernel makes another each time,
// writes the same line thousands of times. Who is ended meanwhile, or writes beside it, loses no line, and has some twice at most.
func foldChanges() error {
	if _, err := os.Lstat(movingChanges); errors.Is(err, fs.ErrNotExist) {
		if err := os.Rename(ChangesFile, movingChanges); err != nil {
			return err
		}
	}
	changes, err := readChanges(olderChanges, movingChanges)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, c := range folded(changes, isThere) {
		line, err := json.Marshal(c)
		if err != nil {
			return err
		}
		if b.Len()+len(line) < mostChanges {
			b.Write(append(line, '\n'))
		}
	}
	if err := file.Replace(olderChanges, b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Remove(movingChanges)
}

// folded returns the changes, the oldest first, with one write for each setting: from what it was at first to what it was made at last.
// It leaves out what nobody can put back: what has gone with its link, and a change that has no write.
func folded(changes []AppliedChange, there func(Write) bool) []AppliedChange {
	type place struct{ change, write int }
	known := map[string]place{}
	var all []AppliedChange
	for _, c := range changes {
		writes := c.Writes
		c.Writes = nil
		for _, w := range writes {
			setting := w.setting()
			if at, is := known[setting]; is {
				if at.change == len(all) {
					c.Writes[at.write].To = w.To
				} else {
					all[at.change].Writes[at.write].To = w.To
				}
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

// setting names what was written, of an offload with its features.
func (w Write) setting() string {
	name := string(w.Kind) + " " + w.Target
	if w.Kind == checks.SetFeatures {
		for entry := range strings.SplitSeq(w.To, ", ") {
			feature, _, _ := strings.Cut(entry, "=")
			name += " " + feature
		}
	}
	return name
}

func isThere(w Write) bool {
	name := "/proc/sys/net/ipv4/conf/" + w.Target // of a link
	switch w.Kind {
	case checks.LoadModule:
		return true
	case checks.SetSysctl:
		name = "/proc/sys/" + w.Target
	}
	_, err := os.Lstat(name)
	return !errors.Is(err, fs.ErrNotExist)
}
