package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
)

// Refusal is an error with its cause and a remedy of its own: a security setting of the machine that causes it or may cause it, or the
// kernel's rules for a parameter.
type Refusal struct {
	Err    error
	By     string // the cause, if Err does not name it
	Remedy string
}

func (r *Refusal) Error() string {
	if r.By == "" {
		return r.Err.Error()
	}
	return r.Err.Error() + "; " + r.By
}

func (r *Refusal) Unwrap() error { return r.Err }

// LoadModule loads a module with options, and its dependencies. The error is a Refusal if a security setting is the cause.
func (h *Host) LoadModule(ctx context.Context, name string, options ...string) error {
	err := h.Kernel.LoadModule(ctx, name, options...)
	if err == nil {
		return nil
	}
	has := func(words ...string) bool { // of strerror(3) in the C locale
		for _, w := range words {
			if strings.Contains(err.Error(), w) {
				return true
			}
		}
		return false
	}
	const sign = "install the module of the distribution's kernel package; to load a module of your own, sign it and enrol the key " +
		"with `mokutil --import`"
	switch lockdown := h.lockdown(); {
	case has("Key was rejected", "Required key not available", "Key has expired", "Key has been revoked"):
		return &Refusal{err, "this kernel loads only modules with a trusted signature (module.sig_enforce or Secure Boot), and the " +
			"signature of " + name + " or of a module that it needs is missing or not trusted", sign}
	case has("Operation not permitted") && h.ModulesDisabled():
		return &Refusal{err, modulesDisabled, ModulesDisabledRemedy}
	case has("Operation not permitted") && lockdown != "":
		return &Refusal{err, "kernel lockdown (" + lockdown + ") allows only signed modules", sign}
	case has("Permission denied"):
		return h.confined(err)
	}
	return err
}

const modulesDisabled = "kernel.modules_disabled is 1, so this kernel loads no module until the next boot"

// ModulesDisabledRemedy is the remedy for a module that is not loaded if ModulesDisabled.
const ModulesDisabledRemedy = modulesDisabled + ": load the module earlier in the boot (`nodegate install` lists it in modules-load.d), " +
	"set kernel.modules_disabled after that, and reboot"

// ModulesDisabled reports whether the kernel refuses to load any module until the next boot.
func (h *Host) ModulesDisabled() bool {
	disabled, err := h.ReadSysctl("kernel/modules_disabled")
	return err == nil && disabled == "1"
}

// lockdown returns the mode of the kernel's lockdown, or "".
func (h *Host) lockdown() string {
	text, err := h.Text("/sys/kernel/security/lockdown") // none [integrity] confidentiality
	_, after, _ := strings.Cut(text, "[")
	mode, _, _ := strings.Cut(after, "]")
	if err != nil || mode == "none" {
		return ""
	}
	return mode
}

// confined returns err, as a Refusal if a security module that enforces its policy may have caused it.
func (h *Host) confined(err error) error {
	if !errors.Is(err, fs.ErrPermission) && !strings.Contains(err.Error(), "Permission denied") || os.Geteuid() != 0 {
		return err
	}
	label, unreadable := h.Text("/proc/self/attr/current")
	label = strings.Trim(label, "\x00")
	profile, enforces := strings.CutSuffix(label, " (enforce)")
	switch selinux, off := h.Text("/sys/fs/selinux/enforce"); {
	case off == nil && selinux == "1":
		return &Refusal{err, "SELinux is enforcing and may have denied it to this process (" + label + ")",
			"find the denial with `journalctl -b -g 'avc:.*nodegate|avc:.*modprobe'`; allow it in SELinux's policy, or run nodegate in a " +
				"domain that may do this"}
	case unreadable == nil && enforces:
		return &Refusal{err, "AppArmor's profile " + profile + " confines this process and may have denied it",
			"find the denial with `journalctl -b -g 'apparmor=\"DENIED\"'`; allow it in the profile, or run nodegate unconfined (a Pod: " +
				"appArmorProfile with type Unconfined)"}
	}
	return err
}
