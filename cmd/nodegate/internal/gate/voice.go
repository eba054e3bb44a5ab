package gate

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"nodegate/internal/host"
)

// Voice writes the gate's messages to the console, and to the journal
// or standard error. No reader can block it: a message that is not accepted in time is
// dropped and counted.
type Voice struct {
	Stderr io.Writer // used if standard error is not connected to the journal

	mu     sync.Mutex
	lost   map[string]int
	lostAt map[string]time.Time
	now    []string // the outlets that have not accepted a message yet
	ended  bool     // nothing is written any more
}

// Say writes to the console, and to the journal or standard error.
func (v *Voice) Say(level host.Level, line string) { v.say(level, line, nil) }

// say writes to the console, and to the journal or standard error.
func (v *Voice) say(level host.Level, line string, fields map[string]string) {
	// Beside each other: outlets that hang together cost the time of one.
	var all sync.WaitGroup
	all.Go(func() { v.onConsole(line) })
	all.Go(func() { v.log(level, line, fields) })
	all.Wait()
}

// status sets the status line of the unit.
func (v *Voice) status(line string) {
	v.write("unit status", func() bool { return host.Status(line) })
}

// onConsole writes to the console only.
func (v *Voice) onConsole(line string) {
	v.write("console", func() bool { return host.Console(line) })
}

func (v *Voice) log(level host.Level, line string, fields map[string]string) {
	if host.LogsToJournal() {
		v.write("journal", func() bool { return host.Log(level, line, fields) })
		return
	}
	v.write("standard error", func() bool { return host.Print(v.Stderr, line) })
}

// leave calls write, which writes files below /run. A file system that hangs does not delay the gate.
func (v *Voice) leave(write func()) {
	v.write("/run", func() bool {
		return host.InTime(func() bool { write(); return true })
	})
}

// retry is the pause of an outlet after a lost message: otherwise every message would wait for
// its timeout, at the cost of the budget.
const retry = 5 * time.Second

func (v *Voice) write(outlet string, write func() bool) {
	v.mu.Lock()
	again := time.Since(v.lostAt[outlet]) > retry && !v.ended
	v.now = append(v.now, outlet)
	v.mu.Unlock()
	accepted := again && write()
	v.mu.Lock()
	defer v.mu.Unlock()
	at := slices.Index(v.now, outlet)
	v.now = slices.Delete(v.now, at, at+1)
	if accepted {
		return
	}
	if v.lost == nil {
		v.lost, v.lostAt = map[string]int{}, map[string]time.Time{}
	}
	v.lost[outlet]++
	if again {
		v.lostAt[outlet] = time.Now()
	}
}

// end drops every later message: another decision than the reported one must not follow.
func (v *Voice) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = true
}

// waiting names the outlets that have not accepted a message, or "".
func (v *Voice) waiting() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.now) == 0 {
		return ""
	}
	return "writing to " + strings.Join(v.now, ", ") + " has not returned"
}

// losses returns a note on the lost messages, or "" if none was lost.
func (v *Voice) losses() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []string
	for _, outlet := range []string{"console", "journal", "standard error", "unit status", "/run"} {
		if n := v.lost[outlet]; n > 0 {
			all = append(all, fmt.Sprintf("%s %d", outlet, n))
		}
	}
	if all == nil {
		return ""
	}
	return "; lost messages: " + strings.Join(all, ", ")
}
