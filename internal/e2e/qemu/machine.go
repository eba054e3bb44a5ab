// Package qemu runs virtual machines for the tests in internal/e2e/vm and internal/e2e/cluster. QEMU ends with the process that started
// it, however that process ends, and leaves nothing behind.
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

// Machine describes the machine that QEMU emulates: processors, a disk, a serial console, virtio ports, no network card.
type Machine struct {
	Program    string // "" means the QEMU for this host's architecture
	Memory     int    // MiB; 0 means 1024
	Processors int    // 0 means 2
	Disk       Disk
	Direct     Direct
	Ports      []string     // names of the guest's virtio ports
	More       []string     // additional arguments of QEMU
	Enter      func() error // if not nil, it joins the namespaces in which QEMU will run; see Start
}

// Disk is the machine's only disk.
type Disk struct{ File, Format string }

// Direct boots a kernel without a boot loader. The zero value boots from the disk.
type Direct struct{ Kernel, Initrd, Cmdline string }

// Running is one boot of a Machine. The caller must end it with Kill.
type Running struct {
	*Process
	Ports []net.Conn // the host's end of each of the Machine's ports

	console    *Recording
	complaints Recording
}

// killTime bounds the wait for a killed QEMU.
const killTime = 10 * time.Second

// Start starts QEMU and so the boot.
func (m Machine) Start() (*Running, error) {
	program := cmp.Or(m.Program, "qemu-system-x86_64")
	cmd := exec.Command(program, m.arguments()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	r := &Running{}
	cmd.Stdout, cmd.Stderr = &r.complaints, &r.complaints
	defer func() {
		for _, theirs := range cmd.ExtraFiles { // if they stayed open here, QEMU's end would go unnoticed
			theirs.Close()
		}
	}()
	for range 1 + len(m.Ports) {
		ours, theirs, err := SocketPair()
		if err != nil {
			r.close()
			return nil, fmt.Errorf("making a port: %w", err)
		}
		r.Ports, cmd.ExtraFiles = append(r.Ports, ours), append(cmd.ExtraFiles, theirs) // starting at descriptor 3
	}
	var err error
	if r.Process, err = Start(cmd, m.Enter); err != nil {
		r.close()
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	r.console = Record(r.Ports[0])
	r.Ports = r.Ports[1:]
	return r, nil
}

// arguments returns QEMU's arguments. -no-reboot makes a reboot of the guest end QEMU. Of several emulated processors only one runs at a
// time (thread=single): in a boot with two concurrent ones under QEMU 7.2, both hung in the kernel until the time was up.
func (m Machine) arguments() []string {
	args := []string{
		"-accel", "tcg,thread=single", "-m", strconv.Itoa(cmp.Or(m.Memory, 1024)),
		"-smp", strconv.Itoa(cmp.Or(m.Processors, 2)), "-no-reboot",
		"-nodefaults", "-no-user-config", "-display", "none",
		"-drive", "if=virtio,cache=unsafe,format=" + m.Disk.Format + ",file=" + value(m.Disk.File),
		"-chardev", "socket,id=console,fd=3", "-serial", "chardev:console",
		"-device", "virtio-serial-pci", "-device", "virtio-rng-pci",
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

// value escapes a value for one of QEMU's option lists.
func value(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// Kill ends the machine like a power failure. It may be called at any time and more than once.
func (r *Running) Kill() {
	_ = r.Signal(syscall.SIGKILL)
	select {
	case <-r.Ended():
	case <-time.After(killTime): // stuck in the kernel: nothing else can be done
	}
	r.close()
}

func (r *Running) close() {
	for _, port := range r.Ports {
		_ = port.Close()
	}
}

// Console returns the machine's output to its serial console so far, without colours and carriage returns.
func (r *Running) Console() string {
	select {
	case <-r.Ended():
		<-r.console.ended // wait for the rest
	default:
	}
	return Plain(r.console.Text())
}

// Complaints waits for QEMU's end and returns its own output.
func (r *Running) Complaints() string {
	<-r.Ended()
	return r.complaints.Text()
}

// SocketPair returns one end for this process and the other end for a child process.
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
