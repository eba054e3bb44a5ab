package setting

import (
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// attributeRemedy is the remedy for an attribute of /sys, which no file of systemd keeps.
const attributeRemedy = "run `nodegate apply`, which nodegate-apply.service does at every boot"

// kindOf returns the kind of a change of a parameter.
func kindOf(key policy.Key) checks.ChangeKind {
	if key.InSysfs() {
		return checks.SetSysfs
	}
	return checks.SetSysctl
}

// hasNoScheduler reports whether a device passes its requests on, as device mapper does, and has no I/O scheduler to select
// (elv_iosched_show in block/elevator.c). A glob over devices is not about it.
func hasNoScheduler(key policy.Key, got string) bool {
	return key.InSysfs() && strings.HasSuffix(string(key), "/queue/scheduler") && got == "none"
}

// refused returns the remedy for a value that the kernel certainly does not accept, or "". The kernel loads an I/O scheduler that it
// does not list yet when it is selected (elv_iosched_store in block/elevator.c).
func (s sysctl) refused(h *host.Host, key policy.Key, want string) string {
	if !key.InSysfs() {
		return ""
	}
	choices := h.Choices(string(key))
	switch {
	case h.ReadOnly(string(key)):
		return key.File() + " is read-only: the kernel takes this value only on its command line, or when it loads the module"
	case choices != nil && !slices.Contains(choices, want) && !strings.HasSuffix(string(key), "/queue/scheduler"):
		return "this kernel offers " + strings.Join(choices, ", ") + " for " + key.File() + ": require one of these"
	}
	return ""
}
