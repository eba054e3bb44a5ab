package program

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Step is something that has begun and not ended. The zero value is none.
type Step struct {
	What  string
	Since time.Time
}

// String says "modprobe -- x has not returned for 20s", or "" for no step.
func (s Step) String() string {
	if s.What == "" {
		return ""
	}
	return fmt.Sprintf("%s has not returned for %s", s.What, time.Since(s.Since).Round(time.Second))
}

// Activity is what a run is doing at the moment. It explains a run that does not
// return: a program that is stuck in the kernel cannot be stopped, only named.
type Activity struct {
	mu    sync.Mutex
	steps []Step
}

type activityKey struct{}

// WithActivity returns a context whose users report what they do, and the
// Activity that knows it.
func WithActivity(ctx context.Context) (context.Context, *Activity) {
	a := &Activity{}
	return context.WithValue(ctx, activityKey{}, a), a
}

// Doing reports that something begins. The caller calls end when it is over.
func Doing(ctx context.Context, what string) (end func()) {
	a, is := ctx.Value(activityKey{}).(*Activity)
	if !is {
		return func() {}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.steps = append(a.steps, Step{what, time.Now()})
	depth := len(a.steps) - 1
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.steps = a.steps[:depth]
	}
}

// Now returns the innermost step.
func (a *Activity) Now() Step {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.steps) == 0 {
		return Step{}
	}
	return a.steps[len(a.steps)-1]
}
