package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// final is an error that more tries cannot repair.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// Final makes Until give up at once.
func Final(err error) error { return final{err} }

// Until calls try until it succeeds or the context ends, and returns the last error of try.
func Until(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		if f := (final{}); errors.As(err, &f) {
			return f.error
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last error: %w", ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
