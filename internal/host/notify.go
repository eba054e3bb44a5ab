package host

import (
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"nodegate/internal/plain"
)

// Status sets the status line of the calling unit in `systemctl status`, and returns false if systemd
// did not accept it in time. Outside a unit it does nothing.
func Status(line string) bool {
	return notify("STATUS=" + strings.ReplaceAll(plain.Escape(line), "\n", "; "))
}

// Ready notifies systemd that the calling unit has started (sd_notify(3)).
func Ready() { notify(daemon.SdNotifyReady) }

// Alive notifies systemd's watchdog that the calling unit does not hang.
func Alive() { notify(daemon.SdNotifyWatchdog) }

// notify drops the message if systemd does not accept it in time.
func notify(state string) bool {
	return InTime(func() bool { _, err := daemon.SdNotify(false, state); return err == nil })
}

// Watchdog returns the longest allowed interval between two calls of Alive: half of WatchdogSec=,
// as sd_watchdog_enabled(3) advises. It returns 0 for a unit without a watchdog.
func Watchdog() time.Duration {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0
	}
	return limit / 2
}
