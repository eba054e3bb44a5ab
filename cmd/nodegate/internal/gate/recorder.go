package gate

import (
	"sync"
	"time"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
)

// recorder writes each change to ChangesFile right before it is made, in order and once. A file system that hangs delays an attempt
// for one line, and again only after retry. Later changes wait, and are written when the file system responds. They are lost if more
// than mostWaiting are waiting, or if the start ends first.
type recorder struct {
	write func(report.AppliedChange)
	slow  time.Time // the last time that a write timed out

	mu      sync.Mutex
	waiting []unrecorded
	writing bool
}

type unrecorded struct {
	change  report.AppliedChange
	written chan struct{}
}

// mostWaiting bounds the waiting changes. It is more than a node's first start makes.
const mostWaiting = 1000

// record writes a change, or queues it. Only one attempt at a time may call it.
func (k *recorder) record(was checks.Result, made []checks.Change) {
	written := k.add(report.Made(was, made))
	if time.Since(k.slow) > retry && !host.InTime(func() bool { <-written; return true }) {
		k.slow = time.Now()
	}
}

// add queues a change. It returns a channel that is closed when the change is written or dropped.
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

// drain writes the waiting changes, and ends when none is left.
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
