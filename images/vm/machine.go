package vm

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The package's own deadlines. They are wide: two emulated machines share two cores with whatever else runs there.
const (
	bootTime = 4 * time.Minute
	haltTime = 3 * time.Minute
	killTime = 10 * time.Second
)

// Machine is what stays the same between boots.
type Machine struct {
	Base *Base
	Disk string // written to by the guest: what one boot leaves, the next one finds
	Dir  string // console logs go here, one a boot

	Format string       // of the disk, as QEMU names it; "" is raw
	Memory int          // MiB; 0 is 1024
	Taps   []string     // network cards: one a tap device, which must exist where Enter leads
	Enter  func() error // nil, or joins the namespaces that QEMU is to run in; see Start
}

// Guest is one boot of a Machine.
type Guest struct {
	console string
	agent   *agent
	cmd     *exec.Cmd
	ended   <-chan struct{} // closed when QEMU is gone
}

// Boot starts the machine and returns once its agent answers, which is early: units may still be starting. The words of
// cmdline are added to the kernel command line. Boot fails with the end of the console's log when the agent does not
// come in time or QEMU ends. The caller must end the Guest by Reboot, PowerOff or Kill.
func (m Machine) Boot(ctx context.Context, cmdline string) (*Guest, error) {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	console, err := os.CreateTemp(m.Dir, "console-*.log")
	if err != nil {
		return nil, fmt.Errorf("recording the console: %w", err)
	}
	console.Close()
	port, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("making the agent's port: %w", err)
	}
	cmd := exec.Command(m.Base.Arch.program, m.arguments(cmdline, console.Name())...)
	cmd.ExtraFiles = []*os.File{theirs} // descriptor 3
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &complaints, &complaints
	qemu, err := Start(cmd, m.Enter)
	_ = theirs.Close() // open here as well, it would hide QEMU's death
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", m.Base.Arch.program, err), port.Close())
	}
	g := &Guest{console: console.Name(), agent: newAgent(port), cmd: cmd, ended: qemu.ended}
	if err := g.agent.hello(ctx); err != nil {
		g.Kill()
		log, _ := g.Console()
		return nil, fmt.Errorf("booting: %w\n%s%s", err, complaints.String(), tail(log, 40))
	}
	return g, nil
}

// arguments are QEMU's. -no-reboot makes the guest's reboot end QEMU; the next Boot then is the other half of it.
func (m Machine) arguments(cmdline, console string) []string {
	words := []string{m.Base.Arch.words, "root=/dev/vda", "rw", "loglevel=4", "net.ifnames=0", "systemd.show_status=true"}
	args := []string{
		"-accel", "tcg,thread=multi", "-m", strconv.Itoa(cmp.Or(m.Memory, 1024)), "-smp", "2", "-no-reboot",
		"-nodefaults", "-no-user-config", "-display", "none",
		"-kernel", m.Base.Kernel, "-initrd", m.Base.Initrd,
		"-append", strings.TrimSpace(strings.Join(words, " ") + " " + cmdline),
		"-drive", "file=" + m.Disk + ",if=virtio,cache=unsafe,format=" + cmp.Or(m.Format, "raw"),
		"-chardev", "file,id=console,path=" + console, "-serial", "chardev:console",
		"-chardev", "socket,id=agent,fd=3",
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=vm.agent",
		"-device", "virtio-rng-pci",
	}
	args = append(args, m.Base.Arch.options...)
	if len(m.Taps) == 0 {
		return append(args, "-nic", "none")
	}
	for i, tap := range m.Taps {
		sum := sha256.Sum256([]byte(tap)) // of one bridge, no two cards may have the same address
		mac := fmt.Sprintf("52:54:00:%02x:%02x:%02x", sum[0], sum[1], sum[2])
		args = append(args, "-netdev", fmt.Sprintf("tap,id=net%d,ifname=%s,script=no,downscript=no", i, tap),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=net%d,mac=%s", i, mac))
	}
	return args
}

// Run executes a shell script (sh -eu) as root in the guest. A script that fails is an Output with a Code, not an error;
// an error says that the guest could not be asked, and then it cannot be asked again. The script itself is stopped at
// the context's deadline, or after a minute where it has none.
func (g *Guest) Run(ctx context.Context, script string) (Output, error) {
	return g.agent.run(ctx, script)
}

// Reboot asks the guest's systemd for a reboot and returns when the machine is down. Boot the Machine again to go on.
func (g *Guest) Reboot(ctx context.Context) error { return g.shutdown(ctx, "reboot") }

// PowerOff asks the guest's systemd to power off and returns when the machine is down.
func (g *Guest) PowerOff(ctx context.Context) error { return g.shutdown(ctx, "poweroff") }

func (g *Guest) shutdown(ctx context.Context, verb string) error {
	ctx, cancel := context.WithTimeout(ctx, haltTime)
	defer cancel()
	defer g.Kill()
	// The agent may be stopped before it has answered; only QEMU's end counts.
	asked := make(chan error, 1)
	go func() {
		out, err := g.Run(ctx, "sync; systemctl --no-block "+verb)
		if err == nil && out.Code != 0 {
			asked <- fmt.Errorf("systemctl %s: exit %d\n%s", verb, out.Code, out.Stderr)
		}
	}()
	select {
	case <-g.ended:
		return nil
	case err := <-asked:
		return err
	case <-ctx.Done():
		log, _ := g.Console()
		return fmt.Errorf("waiting for the %s: %w\n%s", verb, ctx.Err(), tail(log, 40))
	}
}

// Kill ends the machine as a power cut would. It may be called at any time and more than once.
func (g *Guest) Kill() {
	_ = g.cmd.Process.Kill() // an error means that it is gone already
	select {
	case <-g.ended:
	case <-time.After(killTime): // stuck in the kernel: nothing more can be done from here
	}
	g.agent.close()
}

// Console is all that the machine wrote to its serial console so far, without colours and carriage returns.
func (g *Guest) Console() (string, error) {
	raw, err := os.ReadFile(g.console)
	if err != nil {
		return "", fmt.Errorf("reading the console: %w", err)
	}
	return plain(string(raw)), nil
}

// socketPair returns one end for this process and the other for a child.
func socketPair() (net.Conn, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "agent"), os.NewFile(uintptr(fds[1]), "agent")
	conn, err := net.FileConn(ours)
	if err := errors.Join(err, ours.Close()); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn, theirs, nil
}

// MakeMachine turns a prepared tree into a machine with a disk in dir.
func (b *Base) MakeMachine(ctx context.Context, tree, dir string) (Machine, error) {
	m := Machine{Base: b, Disk: filepath.Join(dir, "disk.img"), Dir: dir}
	return m, MakeDisk(ctx, tree, m.Disk)
}
