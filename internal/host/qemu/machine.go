// Package qemu runs virtual machines: for `nodegate image test`, and for the tests of internal/e2e/vm and internal/e2e/cluster.
// QEMU dies with the process that started it, however that process dies, and nothing of it is left.
package qemu

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Machine is what QEMU is to emulate: processors, a disk, a serial console, virtio ports, no network card.
type Machine struct {
	Program     string // "" is the one that emulates this host's kind of machine
	Accelerator string // KVM or TCG
	Memory      int    // MiB; 0 is 1024
	Processors  int    // 0 is 2
	Disk        Disk
	Direct      Direct
	Ports       []string     // names of the guest's virtio ports; SMBIOS has the first as the product's family
	More        []string     // arguments of QEMU's own
	Enter       func() error // nil, or joins the namespaces that QEMU is to run in; see Start
}

// Disk is the only disk.
type Disk struct {
	File, Format string
	Throwaway    bool // the file is only read: what the guest writes is gone with QEMU
}

// Direct boots a kernel without a boot loader; the zero value leaves the boot to the disk.
type Direct struct{ Kernel, Initrd, Cmdline string }

// Running is one boot of a Machine. The caller must end it by Kill.
type Running struct {
	*Process
	Ports []net.Conn // this end of each of the Machine's

	console    *Recording
	complaints Recording
}

// killTime is how long a killed QEMU may take to be gone.
const killTime = 10 * time.Second

// Start starts QEMU, and the boot.
func (m Machine) Start() (*Running, error) {
	program, err := findProgram(m.Program)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, m.arguments()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	r := &Running{}
	cmd.Stdout, cmd.Stderr = &r.complaints, &r.complaints
	defer func() {
		for _, theirs := range cmd.ExtraFiles { // open here as well, they would hide QEMU's death
			theirs.Close()
		}
	}()
	for range 1 + len(m.Ports) {
		ours, theirs, err := SocketPair()
		if err != nil {
			r.close()
			return nil, fmt.Errorf("making a port: %w", err)
		}
		r.Ports, cmd.ExtraFiles = append(r.Ports, ours), append(cmd.ExtraFiles, theirs) // from descriptor 3 on
	}
	if r.Process, err = Start(cmd, m.Enter); err != nil {
		r.close()
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	r.console = Record(r.Ports[0])
	r.Ports = r.Ports[1:]
	return r, nil
}

// arguments are QEMU's. -no-reboot makes the guest's reboot end QEMU. Of emulated processors one runs at a time
// (thread=single): in a boot whose two ran at once, under QEMU 7.2, both hung in the kernel until the time was up.
func (m Machine) arguments() []string {
	accelerator := m.Accelerator
	if accelerator == TCG {
		accelerator += ",thread=single"
	}
	drive := "if=virtio,cache=unsafe,format=" + m.Disk.Format + ",file=" + value(m.Disk.File)
	if m.Disk.Throwaway {
		drive += ",snapshot=on" // QEMU removes the name of its overlay before it uses it
	}
	args := []string{
		"-accel", accelerator, "-m", strconv.Itoa(cmp.Or(m.Memory, 1024)),
		"-smp", strconv.Itoa(cmp.Or(m.Processors, 2)), "-no-reboot",
		"-nodefaults", "-no-user-config", "-display", "none",
		"-drive", drive,
		"-chardev", "socket,id=console,fd=3", "-serial", "chardev:console",
		"-device", "virtio-serial-pci", "-device", "virtio-rng-pci",
	}
	if len(m.Ports) > 0 {
		args = append(args, "-smbios", "type=1,family="+value(m.Ports[0]))
	}
	for i, name := range m.Ports {
		args = append(args, "-chardev", fmt.Sprintf("socket,id=port%d,fd=%d", i, 4+i),
			"-device", fmt.Sprintf("virtserialport,chardev=port%d,name=%s", i, value(name)))
	}
	if m.Direct.Kernel != "" {
		args = append(args, "-kernel", m.Direct.Kernel, "-append", m.Direct.Cmdline)
	}
	if m.Direct.Initrd != "" {
		args = append(args, "-initrd", m.Direct.Initrd)
	}
	return append(args, m.More...)
}

// value returns a value in one of QEMU's lists of options.
func value(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// Kill ends the machine as a power cut would. It may be called at any time and more than once.
func (r *Running) Kill() {
	_ = r.Signal(syscall.SIGKILL)
	select {
	case <-r.Ended():
	case <-time.After(killTime): // stuck in the kernel: nothing more can be done from here
	}
	r.close()
}

func (r *Running) close() {
	for _, port := range r.Ports {
		_ = port.Close()
	}
}

// Console returns what the machine wrote to its serial console so far, without colours and carriage returns.
func (r *Running) Console() string {
	select {
	case <-r.Ended():
		<-r.console.ended // the rest
	default:
	}
	return Plain(r.console.Text())
}

// Complaints returns what QEMU itself printed, once it is gone.
func (r *Running) Complaints() string {
	<-r.Ended()
	return r.complaints.Text()
}

// NoKVM returns QEMU's words where KVM cannot run the machine, "" where it can as far as is known. There are hosts, most of them
// virtual machines, whose KVM stops at an instruction that it does not know: QEMU says so, and waits for ever. Of others QEMU fails with
// words about KVM, as where it lacks a register of the processor (target/i386/kvm/kvm.c).
func (r *Running) NoKVM() string {
	signs := []string{"KVM internal error", "kvm run failed", "failed to initialize kvm"}
	select {
	case <-r.Ended():
		if r.Wait() != nil {
			signs = append(signs, "kvm", "KVM")
		}
	default:
	}
	for line := range strings.Lines(r.complaints.Text()) {
		for _, words := range signs {
			if strings.Contains(line, words) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}

// SocketPair returns one end for this process and the other for a child.
func SocketPair() (net.Conn, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "port"), os.NewFile(uintptr(fds[1]), "port")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn, theirs, nil
}
