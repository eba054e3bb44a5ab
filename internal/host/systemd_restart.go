package host

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// SystemdSocket is where systemd itself listens below its root, for root only;
// no bus daemon stands between.
const SystemdSocket = "/run/systemd/private"

// RestartUnits makes the systemd behind a socket read its unit files again, and
// then restarts the units, each after the one before has started. A container that
// has nothing but the socket of its host can do so.
func RestartUnits(ctx context.Context, socket string, units []string) error {
	c, err := dbus.NewConnection(func() (*godbus.Conn, error) {
		conn, err := godbus.Dial("unix:path=" + godbus.EscapeBusAddressValue(socket))
		if err != nil {
			return nil, err
		}
		methods := []godbus.Auth{godbus.AuthExternal(strconv.Itoa(os.Getuid()))}
		if err := conn.Auth(methods); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return conn, nil
	})
	if err != nil {
		return fmt.Errorf("asking systemd at %s: %w", socket, err)
	}
	defer c.Close()
	if err := c.ReloadContext(ctx); err != nil {
		return fmt.Errorf("asking systemd at %s to reload its units: %w", socket, err)
	}
	for _, unit := range units {
		done := make(chan string, 1)
		if _, err := c.RestartUnitContext(ctx, unit, "replace", done); err != nil {
			return fmt.Errorf("restarting %s: %w", unit, err)
		}
		select {
		case result := <-done:
			if result != "done" {
				return fmt.Errorf("restarting %s: systemd answers %q; run on that machine: systemctl status %s", unit, result, unit)
			}
		case <-ctx.Done():
			return fmt.Errorf("restarting %s: %w", unit, ctx.Err())
		}
	}
	return nil
}
