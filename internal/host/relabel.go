package host

import (
	"context"
	"errors"

	"nodegate/internal/host/program"
)

// Relabel gives new files of the running machine the label that SELinux's policy names for their paths: a file that a service creates may
// get another one. It does nothing without SELinux or its restorecon.
func (h *Host) Relabel(ctx context.Context, paths []string) error {
	if on, err := h.Files.Exists("/sys/fs/selinux/enforce"); err != nil || !on || !h.Live() || len(paths) == 0 {
		return err
	}
	if _, err := program.Find("restorecon"); err != nil {
		return errors.New("restorecon is not installed, so the new files keep the labels that they were created with")
	}
	_, err := program.Run(ctx, "restorecon", paths...)
	return err
}
