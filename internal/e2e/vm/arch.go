package vm

import (
	"syscall"
)

// Arch describes the differences between the processors of machines.
type Arch struct {
	Name    string   // the name in Debian and Go
	program string   // the QEMU that emulates machines; "" is the host's usual one
	options []string // more options of QEMU
	words   string   // more words of the kernel command line
	user    []string // command prefix that runs a program on this host
}

// emulated is the kernel command line of emulated machines. On a busy host the emulated timer is late; without no_timer_check the
// kernel would call it broken and panic. Without norandmaps QEMU 7.2 translates code again for every address at which it runs, and
// a boot takes half as long again, because each process has its libraries at other addresses.
const emulated = "no_timer_check norandmaps"

// amd64 has QEMU's usual processor without the feature for which udev loads KVM. That saves half a second per boot.
func amd64() Arch {
	return Arch{Name: "amd64", options: []string{"-cpu", "qemu64,-svm"}, words: emulated + " console=ttyS0"}
}

// ARM64 is always emulated.
func ARM64() Arch {
	return Arch{
		Name: "arm64", program: "qemu-system-aarch64", options: []string{"-machine", "virt", "-cpu", "cortex-a57"}, words: "console=ttyAMA0",
		user: []string{"qemu-aarch64-static"},
	}
}

// foreignCommand runs a command on a host whose kernel runs arm64 programs with QEMU. Either the administrator has configured that, or a
// binfmt_misc in the command's own user namespace does it (Linux 6.7), and ends with the command.
const foreignCommand = `
formats=/proc/sys/fs/binfmt_misc
if ! [ -e $formats/qemu-aarch64 ]; then
	mount -t binfmt_misc binfmt_misc $formats ||
		{ echo "a kernel before 6.7 must know arm64 already: systemctl restart systemd-binfmt"; exit 1; }
	cat /usr/lib/binfmt.d/qemu-aarch64.conf >$formats/register
fi
exec "$@"
`

// builder returns the command that builds a tree, and its process attributes.
func (a Arch) builder(options []string) ([]string, *syscall.SysProcAttr) {
	command, attr := append([]string{"mmdebstrap"}, options...), ownNamespaces()
	if len(a.user) == 0 {
		return command, attr
	}
	// The user namespace maps every user, so that the owners of the files are the same as outside.
	everybody := []syscall.SysProcIDMap{{Size: 1<<32 - 1}}
	attr.Cloneflags |= syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
	attr.Unshareflags, attr.UidMappings, attr.GidMappings, attr.GidMappingsEnableSetgroups = 0, everybody, everybody, true
	return append([]string{"sh", "-euc", foreignCommand, "foreign"}, command...), attr
}
