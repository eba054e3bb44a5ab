package vm

import (
	"syscall"
)

// Arch is what differs between the processors that machines can have.
type Arch struct {
	Name    string   // as Debian and Go call it
	program string   // the QEMU that emulates machines; "" is the host's usual one
	options []string // its own
	words   string   // the kernel's own
	user    []string // what runs a program on this host, before the program's name
}

// emulated is what the kernel of an emulated machine is told. On a busy host its timer is late, and the kernel would take it for a broken
// one and panic. And QEMU 7.2 translates code anew for each address at which it runs: where every process has its libraries at addresses of
// its own, a boot takes half as much again.
const emulated = "no_timer_check norandmaps"

// amd64 has QEMU's usual processor, without the feature for which udev loads KVM, half a second of each boot.
func amd64() Arch {
	return Arch{Name: "amd64", options: []string{"-cpu", "qemu64,-svm"}, words: emulated + " console=ttyS0"}
}

// ARM64 is run by emulation too, wherever it runs.
func ARM64() Arch {
	return Arch{
		Name: "arm64", program: "qemu-system-aarch64", options: []string{"-machine", "virt", "-cpu", "cortex-a57"}, words: "console=ttyAMA0",
		user: []string{"qemu-aarch64-static"},
	}
}

// foreign runs a command where the kernel runs arm64 programs by QEMU: as its administrator has it, or by a binfmt_misc that belongs to
// the command's own user namespace (Linux 6.7) and ends with it.
const foreign = `
formats=/proc/sys/fs/binfmt_misc
if ! [ -e $formats/qemu-aarch64 ]; then
	mount -t binfmt_misc binfmt_misc $formats ||
		{ echo "a kernel before 6.7 must know arm64 already: systemctl restart systemd-binfmt"; exit 1; }
	cat /usr/lib/binfmt.d/qemu-aarch64.conf >$formats/register
fi
exec "$@"
`

// builder returns the command that makes a tree, and what it runs as.
func (a Arch) builder(options []string) ([]string, *syscall.SysProcAttr) {
	command, attr := append([]string{"mmdebstrap"}, options...), apart()
	if len(a.user) == 0 {
		return command, attr
	}
	// Root in a user namespace that has every user there is: the files' owners are as they are outside.
	everybody := []syscall.SysProcIDMap{{Size: 1<<32 - 1}}
	attr.Cloneflags |= syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
	attr.Unshareflags, attr.UidMappings, attr.GidMappings, attr.GidMappingsEnableSetgroups = 0, everybody, everybody, true
	return append([]string{"sh", "-euc", foreign, "foreign"}, command...), attr
}
