package settle

import (
	"fmt"
	"time"
)

// Writer is a process with which kube-proxy writes rules; the zero value is none. iptables-restore of the nft
// variant computes for many minutes before it writes 50,000 endpoints, and the tables have kube-proxy's canaries only until then.
type Writer struct {
	PID  int
	Runs time.Duration // since it began
	Used time.Duration // of the processors
}

const (
	longWrite = 2 * time.Second // the usual writing takes less
	// What uses less than the first of a processor after stuckWrite waits for something. Nothing is an excuse for longer than the second.
	worksPart, longestWrite = 0.05, time.Hour
)

// Long reports whether it is at one long writing, and is not stuck: what is in the rules is about to change.
func (w Writer) Long() bool {
	works := w.Runs < stuckWrite || w.Used.Seconds() >= worksPart*w.Runs.Seconds() && w.Runs < longestWrite
	return w.PID != 0 && w.Runs >= longWrite && works
}

// Says tells of a long writing, at the end of a message.
func (w Writer) Says() string {
	if w.PID == 0 {
		return ""
	}
	return fmt.Sprintf(", and kube-proxy was at one writing (process %d, for %s)", w.PID, seconds(w.Runs))
}

// excuse counts anew while kube-proxy is at one long writing. Another process may go on with the next, and be long only after a time:
// what the rules alone show has to last that much longer.
func (l *loop) excuse(now time.Time) {
	l.writer = Writer{}
	if l.open() == 0 {
		return
	}
	w := l.node.Writer()
	if !w.Long() {
		return
	}
	l.writer = w
	for _, s := range l.suspects {
		s.since = now
	}
	for _, h := range l.alone {
		h.since = now.Add(2 * longWrite)
	}
}
