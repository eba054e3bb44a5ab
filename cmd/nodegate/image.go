package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/imagetest"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host/file"
	"nodegate/internal/host/qemu"
	"nodegate/policy"
)

func newImage() *cobra.Command {
	c := &cobra.Command{
		Use:     "image",
		Short:   "Boot a machine image before it ships",
		Example: "  nodegate image test baked/disk/node.qcow2",
	}
	c.AddCommand(newImageTest())
	return c
}

func newImageTest() *cobra.Command {
	var o options
	var with string
	t := imagetest.Test{Firmware: qemu.BIOS, Accelerator: qemu.Auto, Memory: 1024, Processors: 2, Boots: 1,
		Timeout: 5 * time.Minute, Hold: 30 * time.Second}
	c := &cobra.Command{
		Use:   "test IMAGE",
		Short: "Boot an image in QEMU and print the report of its gate",
		Long: `Test boots a qcow2 or raw image in QEMU and waits for the verdict of the gate,
which holds kubelet. It prints the gate's report as check does. The image itself
does not change: the machine's writes are discarded. The machine has no outside
network.

The gate must be installed in the image, and kubelet's unit must be enabled. If
a boot ends in a kernel panic, an emergency shell or silence, test prints the
last lines of the console. For that, the image's kernel command line needs
console=ttyS0.

Exit status: 0 the gate passes in every boot, 1 the gate fails or is not
reached, 2 the image cannot be booted, 3 the gate's verdict is unknown or
missing.`,
		Example: `  nodegate image test node.qcow2
  nodegate image test node.qcow2 --firmware uefi --boots 5
  nodegate image test node.qcow2 --with stricter.hcl -o json
  nodegate image test root.img --kernel vmlinuz --initrd initrd.img \
    --cmdline 'root=/dev/vda console=ttyS0'`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			write, err := report.Renderer(o.format, o.paint(c.OutOrStdout()), o.verbose)
			if err != nil {
				return err
			}
			t.Image = args[0]
			switch {
			case t.Boots < 1:
				return errors.New("--boots must be at least 1")
			case t.Memory < 1:
				return errors.New("--memory must be at least 1 MiB")
			case t.Processors < 1:
				return errors.New("--cpus must be at least 1")
			case t.Timeout <= 0:
				return errors.New("--timeout must be positive")
			case t.Hold < 0:
				return errors.New("--hold must not be negative")
			}
			if t.Direct.Kernel == "" && t.Direct != (qemu.Direct{}) {
				return errors.New("--initrd and --cmdline require --kernel")
			}
			if with != "" {
				if t.Policy, err = file.ReadInput(with, policy.MaxFileSize); err != nil {
					return fmt.Errorf("reading policy: %w", err)
				}
			}
			status := report.StatusLine(c.ErrOrStderr())
			t.Progress = func(boot int, running time.Duration, console string) {
				status(fmt.Sprintf("boot %d of %d, %.0f s: %s", boot, t.Boots, running.Seconds(), console))
			}
			out, err := t.Run(c.Context())
			status("")
			if err != nil {
				return err
			}
			if err := o.write(c.OutOrStdout(), func(w io.Writer) error { return write(w, out.Report) }); err != nil {
				return err
			}
			if out.NoKVM != "" {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: KVM on this host cannot run the machine (%s); it was emulated\n", report.OneLine(out.NoKVM))
			}
			if out.Console != "" {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: console output:\n%s\n", out.Console)
			}
			if t.Boots > 1 {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: %d of %d boots passed\n", out.Passed, t.Boots)
			}
			return exitCode(out.Report.Verdict)
		},
	}
	f := c.Flags()
	f.StringVar(&t.Firmware, "firmware", t.Firmware, "bios or uefi")
	f.StringVar(&t.Accelerator, "accelerator", t.Accelerator, "kvm, tcg (slow), or auto (kvm if it works)")
	f.IntVar(&t.Memory, "memory", t.Memory, "memory of the machine in `MiB`")
	f.IntVar(&t.Processors, "cpus", t.Processors, "number of processors, `N`")
	f.IntVar(&t.Boots, "boots", t.Boots, "boot `N` times, to find faults that do not occur in every boot; "+
		"each boot starts from the unchanged image")
	f.DurationVar(&t.Timeout, "timeout", t.Timeout, "stop a boot after this long")
	f.DurationVar(&t.Hold, "hold", t.Hold, "accept a verdict other than pass after it has lasted for `DURATION`; "+
		"the gate may still pass before")
	f.StringVar(&with, "with", "", "test with the policy in `FILE` instead of the image's (the image needs systemd 252)")
	f.StringVar(&t.Direct.Kernel, "kernel", "", "boot the kernel in `FILE` (for an image without a boot loader)")
	f.StringVar(&t.Direct.Initrd, "initrd", "", "use `FILE` as the kernel's initial RAM disk")
	f.StringVar(&t.Direct.Cmdline, "cmdline", "", "use `WORDS` as the kernel's command line")
	o.formatFlags(c, "text", "json", "junit", "tap", "prometheus", "npd")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "also list the checks that pass, with evidence")
	completeWith(c, "firmware", qemu.BIOS, qemu.UEFI)
	completeWith(c, "accelerator", qemu.Auto, qemu.KVM, qemu.TCG)
	return c
}
