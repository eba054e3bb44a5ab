package settle

import (
	"fmt"
	"time"
)

// Writer is a process with which kube-proxy writes rules; the zero value means none. The nft variant of iptables-restore computes for
// many minutes before it writes 50,000 endpoints. During that time, the tables contain only kube-proxy's canaries.
type Writer struct {
	PID  int
	Runs time.Duration // time since its start
	Used time.Duration // processor time
}

const (
	longWrite = 2 * time.Second // a usual sync takes less
	// After stuckWrite, a process that uses less than worksPart of a processor is waiting for
	// something. No process is an excuse for longer than longestWrite.
	worksPart, longestWrite = 0.05, time.Hour
)

// Long reports whether kube-proxy is in a long sync that is not stuck, so that the rules are about to change.
func (w Writer) Long() bool {
	works := w.Runs < stuckWrite || w.Used.Seconds() >= worksPart*w.Runs.Seconds() && w.Runs < longestWrite
	return w.PID != 0 && w.Runs >= longWrite && works
}

// Describe describes a long sync, as the suffix of a message.
func (w Writer) Describe() string {
	if w.PID == 0 {
		return ""
	}
	return fmt.Sprintf("; kube-proxy was in a long sync (process %d, running for %s)", w.PID, seconds(w.Runs))
}

// excuseLongSync restarts the time of all suspects and findings during a long sync. Another process may continue with the next table and
// count as long only after some time, so findings of the rules alone get that much more time.
func (l *loop) excuseLongSync(now time.Time) {
	l.writer = Writer{}
	if l.countOpen() == 0 {
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
