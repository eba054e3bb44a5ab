package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
)

// Where a running machine keeps what nodegate did and found, until it restarts.
const (
	runDir      = "/run/nodegate"
	changesFile = runDir + "/changes.jsonl"
	reportFile  = runDir + "/report.json"
	watchFile   = runDir + "/watch.json"
)

// change is one line of changesFile: enough to undo it by hand.
type change struct {
	Time time.Time `json:"time"`
	Name string    `json:"name"`
	Was  string    `json:"was"`
	Now  string    `json:"now"`
}

// recordChanges appends what an apply fixed to changesFile and tells the
// journal. Without the right to write there (an ordinary user in a namespace of
// its own) it is in the report alone.
func recordChanges(r checks.Report) {
	for _, res := range r.Results {
		if !res.Fixed {
			continue
		}
		keepChange(change{time.Now().UTC(), res.Name, res.Was, res.State.Got})
		host.Log(host.LevelNotice, fmt.Sprintf("nodegate: %s was %s, is %s", res.Name, res.Was, res.State.Got), map[string]string{
			"NODEGATE_CHECK": res.Name, "NODEGATE_WAS": res.Was, "NODEGATE_GOT": res.State.Got,
		})
	}
}

// mostChanges is how large changesFile grows, in bytes. It is in memory: what is
// older is kept in one file more, and then dropped.
const mostChanges = 1 << 20

func keepChange(c change) {
	line, err := json.Marshal(c)
	if err != nil || os.MkdirAll(runDir, 0o755) != nil {
		return
	}
	if info, err := os.Stat(changesFile); err == nil && info.Size() > mostChanges {
		_ = os.Rename(changesFile, changesFile+".1")
	}
	f, err := os.OpenFile(changesFile, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.Write(append(line, '\n'))
}

// replaceFile replaces a file as a whole, or not at all.
func replaceFile(name string, content []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".nodegate-new-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
