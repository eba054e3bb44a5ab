package netns

import (
	"context"
	"fmt"
	"io"
	"net"
)

// Lock claims a name in the namespace until it is closed or the process ends for any reason. It is
// an abstract socket: its scope is exactly the namespace, and it needs no file. The error wraps
// EADDRINUSE if another process has the name.
func (n *Namespace) Lock(ctx context.Context, name string) (io.Closer, error) {
	var lock io.Closer
	err := n.Do(ctx, func() (err error) {
		if lock, err = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: "@" + name}); err != nil {
			return fmt.Errorf("taking lock %s: %w", name, err)
		}
		return nil
	})
	return lock, err
}
