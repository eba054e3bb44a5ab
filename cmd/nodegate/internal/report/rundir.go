package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/file"
)

// Where a running machine keeps what nodegate did and found, until it restarts.
const (
	runDir      = "/run/nodegate"
	ChangesFile = runDir + "/changes.jsonl"
	File        = runDir + "/report.json"
	WatchFile   = runDir + "/watch.json"
)

// Leave writes a document to one of the files above, as a whole or not at all.
func Leave(name string, document any) error {
	var b bytes.Buffer
	if err := JSON(&b, document); err != nil {
		return err
	}
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return err
	}
	return file.Replace(name, b.Bytes(), 0o644)
}

// AppliedChange is one line of ChangesFile: enough to undo it by hand.
type AppliedChange struct {
	Time time.Time `json:"time"`
	Name string    `json:"name"`
	Was  string    `json:"was"`
	Now  string    `json:"now"`
	// Writes are what was written for it, for `nodegate revert`; before each, what the kernel keeps in step with it.
	Writes []Write `json:"writes,omitempty"`
}

// Write is one value that was written.
type Write struct {
	Kind   checks.ChangeKind `json:"kind"`
	Target string            `json:"target"`
	From   string            `json:"from"`
	To     string            `json:"to"`
}

// NewAppliedChange returns the line about what was made for a requirement.
func NewAppliedChange(at time.Time, name, was, now string, made []checks.Change) AppliedChange {
	return AppliedChange{at.UTC(), name, was, now, writes(made)}
}

func writes(made []checks.Change) []Write {
	var all []Write
	for _, c := range made {
		if c.AlsoWritten != nil {
			all = append(all, writes(c.AlsoWritten())...)
		}
		if c.Target != "" {
			all = append(all, Write{c.Kind, c.Target, c.From, c.To})
		}
	}
	return all
}

// ReadChanges returns what ChangesFile has, and what it had, the newest first. A line that is cut off
// or no change is left out.
func ReadChanges() ([]AppliedChange, error) {
	all, err := readChanges(olderChanges, movingChanges, ChangesFile)
	slices.Reverse(all)
	return all, err
}

func readChanges(names ...string) ([]AppliedChange, error) {
	var all []AppliedChange
	for _, name := range names {
		text, err := file.Read(name, 2*mostChanges)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for line := range bytes.Lines(text) {
			var c AppliedChange
			if json.Unmarshal(line, &c) == nil {
				all = append(all, c)
			}
		}
	}
	return all, nil
}

// ReplaceChanges leaves only these changes, the newest first.
func ReplaceChanges(left []AppliedChange) error {
	var b bytes.Buffer
	for _, c := range slices.Backward(left) {
		line, err := json.Marshal(c)
		if err != nil {
			return err
		}
		b.Write(append(line, '\n'))
	}
	if err := file.Replace(ChangesFile, b.Bytes(), 0o644); err != nil {
		return err
	}
	for _, older := range []string{olderChanges, movingChanges} {
		if err := os.Remove(older); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Made is the line about what has just been made for a requirement, before anything is read back: of a program that is ended
// meanwhile, too, it says how to undo it. One change of several is said alone: the others have lines of their own, or were not made.
func Made(was checks.Result, made []checks.Change) AppliedChange {
	c := NewAppliedChange(time.Now(), was.Name, was.State.Got, was.State.Want, made)
	if len(made) == 1 {
		wrote := c.Writes[len(c.Writes)-1]
		c.Now = wrote.To
		if len(was.State.Changes) > 1 {
			c.Was, c.Now = made[0].What+": "+wrote.From, made[0].What+": "+wrote.To
		}
	}
	return c
}

// RecordFixed appends to ChangesFile what an apply fixed by a change of something else. What it wrote is there already: see Made.
func RecordFixed(r checks.Outcome) {
	for _, res := range r.Results {
		if res.Fixed && res.Made == nil {
			RecordChange(NewAppliedChange(time.Now(), res.Name, res.Was, res.State.Got, nil))
		}
	}
}

// LogFixed says to the journal, where standard error is that, what an apply fixed.
func LogFixed(r checks.Outcome, log func(line string, fields map[string]string)) {
	if !host.LogsToJournal() {
		return
	}
	for _, res := range r.Results {
		if res.Fixed {
			log(fmt.Sprintf("nodegate: %s was %s, is %s", res.Name, res.Was, res.State.Got), map[string]string{
				"NODEGATE_CHECK": res.Name, "NODEGATE_WAS": res.Was, "NODEGATE_GOT": res.State.Got,
			})
		}
	}
}

// mostChanges is how large ChangesFile grows, in bytes, because it is in memory.
// Older lines become one more file, with one line for each setting: see foldChanges.
const mostChanges = 1 << 20

// RecordChange appends one change. Without the right to write there (an ordinary
// user in a namespace of its own) the change is in the report alone.
func RecordChange(c AppliedChange) {
	line, err := json.Marshal(c)
	if err != nil || os.MkdirAll(runDir, 0o755) != nil {
		return
	}
	if info, err := os.Stat(ChangesFile); err == nil && info.Size() > mostChanges {
		_ = foldChanges() // what it could not write it tries again
	}
	f, err := os.OpenFile(ChangesFile, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.Write(append(line, '\n'))
}

// CountPass notes a pass of the gate, and returns how many there were in the time
// before now, this one included. Where it cannot be written, it counts one.
func CountPass(now time.Time, within time.Duration) int {
	text, _ := file.Read(passesFile, mostPasses) // the first pass finds none
	times := []string{now.UTC().Format(time.RFC3339)}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if t, err := time.Parse(time.RFC3339, line); err == nil && now.Sub(t) < within && !t.After(now) && len(times) < 100 {
			times = append(times, line)
		}
	}
	err := os.MkdirAll(runDir, 0o755)
	if err == nil {
		err = file.Replace(passesFile, []byte(strings.Join(times, "\n")+"\n"), 0o644)
	}
	if err != nil {
		return 1
	}
	return len(times)
}

const (
	passesFile = runDir + "/passes"
	mostPasses = 1 << 16
)
