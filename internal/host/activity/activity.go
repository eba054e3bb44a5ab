// Package activity records what a run is doing, so that a run that does not return can be
// explained.
package activity

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Step is an action that has begun but not ended. The zero value means no action.
type Step struct {
	What  string
	Since time.Time
}

// String returns "modprobe -- x has not returned for 20s", or "" for the zero Step.
func (s Step) String() string {
	if s.What == "" {
		return ""
	}
	return fmt.Sprintf("%s has not returned for %s", s.What, time.Since(s.Since).Round(time.Second))
}

// Activity is the current action of a run. It explains a run that does not return: a program that
// is stuck in the kernel cannot be stopped, only named. Steps may overlap.
type Activity struct {
	mu    sync.Mutex
	steps []*Step // in the order in which they began
}

type key struct{}

// With returns a context whose users report their actions, and the Activity that records them.
func With(ctx context.Context) (context.Context, *Activity) {
	a := &Activity{}
	return context.WithValue(ctx, key{}, a), a
}

// Doing reports that an action begins. The caller must call end when it is over.
func Doing(ctx context.Context, what string) (end func()) {
	a, is := ctx.Value(key{}).(*Activity)
	if !is {
		return func() {}
	}
	step := &Step{what, time.Now()}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.steps = append(a.steps, step)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.steps = slices.DeleteFunc(a.steps, func(s *Step) bool { return s == step })
	}
}

// Now returns the step that began last, which is the innermost one.
func (a *Activity) Now() Step {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.steps) == 0 {
		return Step{}
	}
	return *a.steps[len(a.steps)-1]
}
