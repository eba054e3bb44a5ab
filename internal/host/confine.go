package host

import (
	"fmt"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// ConfineWrites leaves this process, and what it starts, the right to change files below these folders and nowhere else, for good. Where
// the kernel has no Landlock (before 5.13, or switched off) it does nothing. It takes microseconds; a mount namespace, as systemd's
// ProtectSystem= makes one, ten milliseconds of a boot.
func ConfineWrites(folders ...string) error {
	const changes landlock.AccessFSSet = ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile |
		ll.AccessFSMakeChar | ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeSock | ll.AccessFSMakeFifo | ll.AccessFSMakeBlock |
		ll.AccessFSMakeSym
	config, err := landlock.NewConfig(changes)
	if err == nil {
		err = config.BestEffort().RestrictPaths(landlock.PathAccess(changes, folders...).IgnoreIfMissing())
	}
	if err != nil {
		return fmt.Errorf("confining writes to %q: %w", folders, err)
	}
	return nil
}
