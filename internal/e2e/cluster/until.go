package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// final is an error that trying again will not mend.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// Final makes Until give up at once.
func Final(err error) error { return final{err} }

// Until tries again and again until try succeeds or the context ends. The error is try's last one.
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
			return fmt.Errorf("%w; at last: %w", ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
