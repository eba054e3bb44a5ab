package program

import (
	"context"
	"io"
	"testing"
	"time"

	"nodegate/internal/assert"
)

// TestFlood: a program that prints endlessly is killed before it exhausts the memory, on either output.
func TestFlood(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := Run(ctx, "sh", "-c", "exec yes")
	assert.ErrorContains(t, err, "it printed more than 16777216 bytes and was killed", "standard output")
	_, err = Run(ctx, "sh", "-c", "yes | head -c 20000000 >&2; exit 1")
	assert.True(t, err != nil && len(err.Error()) <= 2*maxStderr, "standard error: %.200v", err)
}

// TestChildHoldsOutput: a child process that keeps its parent's output open does not delay the caller beyond the end of the context.
func TestChildHoldsOutput(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	child := func(_ string, r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }
	done := make(chan error, 1)
	go func() { done <- Stream(ctx, child, "sh", "-c", "sleep 20 & exit 0") }()
	select {
	case err := <-done:
		assert.ErrorContains(t, err, "was killed before it finished", "Stream")
	case <-time.After(15 * time.Second):
		t.Error("the call waits for the child")
	}
}
