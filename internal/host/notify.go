package host

import (
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"nodegate/internal/plain"
)

// Status sets the line that `systemctl status` shows for the calling unit.
// Outside a unit it does nothing.
func Status(line string) { notify("STATUS=" + strings.ReplaceAll(plain.Escape(line), "\n", "; ")) }

// Ready tells systemd that the calling unit has started (sd_notify(3)).
func Ready() { notify(daemon.SdNotifyReady) }

// Alive tells systemd's watchdog that the calling unit does not hang.
func Alive() { notify(daemon.SdNotifyWatchdog) }

// notify loses the message where systemd does not accept it in time.
func notify(state string) {
	if socket := os.Getenv("NOTIFY_SOCKET"); socket != "" {
		datagram(socket, []byte(state))
	}
}

// Watchdog returns the longest time between two calls of Alive, 0 where no watchdog
// waits for them: half of WatchdogSec=, as sd_watchdog_enabled(3) advises.
func Watchdog() time.Duration {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0
	}
	return limit / 2
}
