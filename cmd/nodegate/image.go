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
		Short: "Boot an image in QEMU, and print the report of its gate",
		Long: `Test boots a qcow2 or raw image in QEMU and waits until the gate in it, which holds
kubelet, gives its verdict. It prints the gate's report as check does. Nothing is
written to the image: what the machine writes is gone with it. The machine's network
leads nowhere.

The gate must be installed in the image, and kubelet's unit enabled there. A boot that
ends in a kernel panic, an emergency shell or silence is told with the console's last
lines; the image's kernel command line needs console=ttyS0 for that.

Exit status: 0 the gate passes in every boot, 1 it fails, or a boot does not come to it,
2 the image cannot be booted at all, 3 the gate does not know, or says nothing.`,
		Example: `  nodegate image test node.qcow2
  nodegate image test node.qcow2 --firmware uefi --boots 5
  nodegate image test node.qcow2 --with stricter.hcl -o json
  nodegate image test root.img --kernel vmlinuz --initrd initrd.img --cmdline 'root=/dev/vda console=ttyS0'`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			write, err := report.Renderer(o.format, o.paint(c.OutOrStdout()), o.verbose)
			if err != nil {
				return err
			}
			t.Image = args[0]
			switch {
			case t.Boots < 1:
				return errors.New("--boots is 1 or more")
			case t.Memory < 1:
				return errors.New("--memory is 1 MiB or more")
			case t.Processors < 1:
				return errors.New("--cpus is 1 or more")
			case t.Timeout <= 0 || t.Hold < 0:
				return errors.New("--timeout is longer than 0, and --hold is not negative")
			}
			if t.Direct.Kernel == "" && t.Direct != (qemu.Direct{}) {
				return errors.New("--initrd and --cmdline go with --kernel")
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
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: KVM on this host cannot run the machine (%s): it was emulated\n", report.OneLine(out.NoKVM))
			}
			if out.Console != "" {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: the console:\n%s\n", out.Console)
			}
			if t.Boots > 1 {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: %d of %d boots passed\n", out.Passed, t.Boots)
			}
			return code(out.Report.Verdict)
		},
	}
	f := c.Flags()
	f.StringVar(&t.Firmware, "firmware", t.Firmware, "bios or uefi")
	f.StringVar(&t.Accelerator, "accelerator", t.Accelerator, "kvm, tcg (slow), or auto: kvm where it works")
	f.IntVar(&t.Memory, "memory", t.Memory, "the machine's memory in `MiB`")
	f.IntVar(&t.Processors, "cpus", t.Processors, "the machine's processors, `N`")
	f.IntVar(&t.Boots, "boots", t.Boots, "boot `N` times, for what fails sometimes; each boot begins with the image as it is")
	f.DurationVar(&t.Timeout, "timeout", t.Timeout, "give up on a boot after this long")
	f.DurationVar(&t.Hold, "hold", t.Hold, "a verdict that is no pass counts once it has lasted for so `long`: what the gate waits for may "+
		"still come")
	f.StringVar(&with, "with", "", "put the policy in `FILE` in force for the test, instead of the image's (the image needs systemd 252)")
	f.StringVar(&t.Direct.Kernel, "kernel", "", "boot the kernel in `FILE`: for an image without a boot loader")
	f.StringVar(&t.Direct.Initrd, "initrd", "", "the kernel's initial RAM disk, a `FILE`")
	f.StringVar(&t.Direct.Cmdline, "cmdline", "", "the kernel's command line, `WORDS`")
	o.formatFlags(c, "the report", "text", "json", "junit", "tap", "prometheus", "npd")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "also list what passes, with the evidence")
	completeWith(c, "firmware", qemu.BIOS, qemu.UEFI)
	completeWith(c, "accelerator", qemu.Auto, qemu.KVM, qemu.TCG)
	return c
}
