package gate

import "time"

const (
	// answerTime bounds each question to a file system.
	answerTime = 3 * time.Second
	// finishTime bounds the messages after the decision, which is also what may be missing of the budget when an outlet or a file
	// system hangs. It is more than shipGrace.
	finishTime = 8 * time.Second
)

// Question is a question whose answer may never come, because a file system hangs. A thread that waits for one cannot be stopped.
type Question[T any] struct{ asked chan T }

// Ask calls answer beside the clock, and returns false if it has not returned after limit. While an earlier call has not returned,
// Ask makes no other, and does not wait again.
func (q *Question[T]) Ask(limit time.Duration, answer func() T) (T, bool) {
	if q.asked == nil {
		asked := make(chan T, 1)
		q.asked = asked
		go func() { asked <- answer() }()
	} else {
		limit = 0
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case a := <-q.asked:
		q.asked = nil
		return a, true
	case <-late.C:
	}
	select { // both were ready
	case a := <-q.asked:
		q.asked = nil
		return a, true
	default:
		var none T
		return none, false
	}
}
