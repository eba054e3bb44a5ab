package host

import (
	"context"

	"nodegate/internal/host/program"
)

// Feed runs a command of the policy's choice, which reads a text, until ctx ends. The error has what it said.
func Feed(ctx context.Context, text string, command []string) error {
	return program.Feed(ctx, text, command[0], command[1:]...)
}
