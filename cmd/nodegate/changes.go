package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"nodegate/checks"
	"nodegate/host"
)

// Where a running machine keeps what nodegate did and found, until it restarts.
const (
	runDir      = "/run/nodegate"
	changesFile = runDir + "/changes.jsonl"
	reportFile  = runDir + "/report.json"
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
	var lines []byte
	for _, res := range r.Results {
		if !res.Fixed {
			continue
		}
		b, err := json.Marshal(change{time.Now().UTC(), res.Name, res.Was, res.State.Got})
		if err != nil {
			continue
		}
		lines = append(append(lines, b...), '\n')
		host.Log(host.LevelNotice, fmt.Sprintf("nodegate: %s was %s, is %s", res.Name, res.Was, res.State.Got), map[string]string{
			"NODEGATE_CHECK": res.Name, "NODEGATE_WAS": res.Was, "NODEGATE_GOT": res.State.Got,
		})
	}
	if lines == nil || os.MkdirAll(runDir, 0o755) != nil {
		return
	}
	f, err := os.OpenFile(changesFile, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.Write(lines)
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
