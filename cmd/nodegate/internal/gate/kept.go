package gate

import (
	"sync"
	"time"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
)

// recorder writes each change to ChangesFile when it has been made, in their order and each once. A file system that hangs holds an
// attempt up for one line, and again only after retry. What is made meanwhile waits, and is written when the file system answers: it is
// lost where there is too much of it, or where the start ends before.
type recorder struct {
	write func(report.AppliedChange)
	slow  time.Time // when a line was last waited for in vain

	mu      sync.Mutex
	waiting []unrecorded
	writing bool
}

type unrecorded struct {
	change  report.AppliedChange
	written chan struct{}
}

// mostWaiting is how many changes wait: more than a node's first start makes.
const mostWaiting = 1000

// record is called by one attempt at a time.
func (k *recorder) record(was checks.Result, made []checks.Change) {
	written := k.add(report.Made(was, made))
	if time.Since(k.slow) > retry && !host.InTime(func() bool { <-written; return true }) {
		k.slow = time.Now()
	}
}

// add returns what is closed when the change is written, or dropped.
func (k *recorder) add(c report.AppliedChange) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := unrecorded{c, make(chan struct{})}
	if len(k.waiting) >= mostWaiting {
		close(u.written)
		return u.written
	}
	k.waiting = append(k.waiting, u)
	if !k.writing {
		k.writing = true
		go k.drain()
	}
	return u.written
}

// drain writes what waits, and ends when that is nothing.
func (k *recorder) drain() {
	for {
		k.mu.Lock()
		if len(k.waiting) == 0 {
			k.writing = false
			k.mu.Unlock()
			return
		}
		next := k.waiting[0]
		k.waiting = k.waiting[1:]
		k.mu.Unlock()
		k.write(next.change)
		close(next.written)
	}
}
