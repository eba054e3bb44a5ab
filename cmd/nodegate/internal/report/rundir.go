package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/file"
)

// The files in which nodegate records its changes and findings until the machine reboots.
const (
	runDir      = "/run/nodegate"
	ChangesFile = runDir + "/changes.jsonl"
	File        = runDir + "/report.json"
	WatchFile   = runDir + "/watch.json"
)

// Leave atomically writes a document to one of the files above.
func Leave(name string, document any) error {
	var b bytes.Buffer
	if err := JSON(&b, document); err != nil {
		return err
	}
	if err := makeRunDir(); err != nil {
		return err
	}
	return file.Replace(name, b.Bytes(), 0o644)
}

// makeRunDir makes the directory with this mode, whatever the umask: programs without privileges read the report.
func makeRunDir() error {
	err := os.Mkdir(runDir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return errors.Join(err, os.Chmod(runDir, 0o755))
}

// AppliedChange is one line of ChangesFile. It has enough detail to undo the change manually.
type AppliedChange struct {
	Time time.Time `json:"time"` // right before it was made
	Name string    `json:"name"` // of the requirement
	Was  string    `json:"was"`  // the state before
	Now  string    `json:"now"`  // the state after
	// Writes lists the writes of the change, for `nodegate revert`. Settings that the kernel changes along with a write precede it.
	Writes []Write `json:"writes,omitempty"`
}

// Write is one written value.
type Write struct {
	Kind   checks.ChangeKind `json:"kind"`            // module, sysctl, sysfs, mtu, offload, ring, channels, coalesce or address
	Target string            `json:"target"`          // the module, parameter path or link
	From   string            `json:"from"`            // the value before
	To     string            `json:"to"`              // the value written
	Along  string            `json:"along,omitempty"` // the parameter with which the kernel changed it; "" if nodegate wrote it
}

// NewAppliedChange returns the line for the changes made for a requirement.
func NewAppliedChange(at time.Time, name, was, now string, made []checks.Change) AppliedChange {
	return AppliedChange{at.UTC(), name, was, now, writes(made)}
}

func writes(made []checks.Change) []Write {
	var all []Write
	for _, c := range made {
		if c.AlsoWritten != nil {
			for _, w := range writes(c.AlsoWritten()) {
				w.Along = cmp.Or(w.Along, c.Target)
				all = append(all, w)
			}
		}
		if c.Target != "" {
			all = append(all, Write{Kind: c.Kind, Target: c.Target, From: c.From, To: c.Stored()})
		}
	}
	return all
}

// ReadChanges returns the changes in ChangesFile and its older files, the newest first, and the places of the lines that are not a change.
func ReadChanges() (all []AppliedChange, damaged []string, err error) {
	all, damaged, err = readChanges(olderChanges, movingChanges, ChangesFile)
	slices.Reverse(all)
	return all, damaged, err
}

func readChanges(names ...string) (all []AppliedChange, damaged []string, err error) {
	for _, name := range names {
		text, err := file.Read(name, 2*maxChanges)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		n := 0
		for line := range bytes.Lines(text) {
			n++
			var c AppliedChange
			switch {
			case json.Unmarshal(line, &c) == nil:
				all = append(all, c)
			case bytes.HasSuffix(line, []byte("\n")): // without it the writer was killed, before it made the change
				damaged = append(damaged, fmt.Sprintf("%s:%d", name, n))
			}
		}
	}
	return all, damaged, nil
}

// lockChanges excludes other processes from the files of changes until unlock is called. It waits for a second at most: a process that was
// stopped in the middle of a line must not hold the gate. Only root may open the lock, so no other user can keep it.
func lockChanges() (unlock func()) {
	f, err := os.OpenFile(runDir+"/changes.lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return func() {}
	}
	for range 100 {
		if !errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return func() { f.Close() }
}

// ReplaceChanges replaces the changes that were read with those that are left. Both begin with the newest. Later changes stay.
func ReplaceChanges(read, left []AppliedChange) error {
	defer lockChanges()()
	now, _, err := ReadChanges()
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for i := range read {
		known[fmt.Sprintf("%+v", read[i])] = true
	}
	later := slices.DeleteFunc(now, func(c AppliedChange) bool { return known[fmt.Sprintf("%+v", c)] })
	left = append(later, left...)
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

// Made returns the line for changes of a requirement; see checks.Record. The line for one change of several describes only that one: the
// others have their own lines, or were not made.
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

// RecordFixed appends to ChangesFile the requirements that apply fixed as a consequence of another change. The writes themselves are
// recorded already; see Made.
func RecordFixed(r checks.Outcome) {
	for _, res := range r.Results {
		if res.Fixed && res.Made == nil {
			RecordChange(NewAppliedChange(time.Now(), res.Name, res.Was, res.State.Got, nil))
		}
	}
}

// LogFixed logs the fixed requirements to the journal, if standard error is connected to it.
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

// maxChanges bounds the size of ChangesFile in bytes, because /run is in memory.
// Older lines move to another file, with one line for each setting; see foldChanges.
const maxChanges = 1 << 20

// RecordChange appends one change to ChangesFile. If the process may not write there (an
// unprivileged user in a namespace), only the report has the change.
func RecordChange(c AppliedChange) {
	line, err := json.Marshal(c)
	if err != nil || makeRunDir() != nil {
		return
	}
	defer lockChanges()()
	if info, err := os.Stat(ChangesFile); err == nil && info.Size() > maxChanges {
		_ = foldChanges() // the next call retries
	}
	f, err := os.OpenFile(ChangesFile, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	_ = f.Chmod(0o644) // whatever the umask
	dropTorn(f)        // of a process that was killed
	if _, err := f.Write(append(line, '\n')); err != nil {
		dropTorn(f) // of a full file system
	}
}

// dropTorn removes a last line without an end from ChangesFile: the next line would become a part of it.
func dropTorn(f *os.File) {
	info, err := f.Stat()
	last := []byte{'\n'}
	if err == nil && info.Size() > 0 {
		_, err = f.ReadAt(last, info.Size()-1)
	}
	if err != nil || last[0] == '\n' {
		return
	}
	if text, err := file.Read(ChangesFile, 2*maxChanges); err == nil {
		_ = f.Truncate(int64(bytes.LastIndexByte(text, '\n') + 1))
	}
}

// CountPass records a pass of the gate, and returns the number of passes within the given
// time before now, including this one. If it cannot write, it returns 1.
func CountPass(now time.Time, within time.Duration) int {
	text, _ := file.Read(passesFile, maxPasses) // the file does not exist before the first pass
	times := []string{now.UTC().Format(time.RFC3339)}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if t, err := time.Parse(time.RFC3339, line); err == nil && now.Sub(t) < within && !t.After(now) && len(times) < 100 {
			times = append(times, line)
		}
	}
	err := makeRunDir()
	if err == nil {
		err = file.Replace(passesFile, []byte(strings.Join(times, "\n")+"\n"), 0o644)
	}
	if err != nil {
		return 1
	}
	return len(times)
}

// GatePassed returns when the gate last passed, or the zero time.
func GatePassed() time.Time {
	info, err := os.Stat(passesFile)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

const (
	passesFile = runDir + "/passes"
	maxPasses  = 1 << 16
)
