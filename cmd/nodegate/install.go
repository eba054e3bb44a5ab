package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"nodegate/checks/catalog"
	"nodegate/checks/datapath"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/host/tree"
	"nodegate/policy"
	"nodegate/units"
)

func newInstall() *cobra.Command {
	var o options
	var force, dryRun, start, assess bool
	c := &cobra.Command{
		Use:   "install",
		Short: "Put binary, policy, units and settings onto a machine or into an image",
		Long: `Install writes, below --root: the binary, the policy, nodegate-apply.service
and nodegate-watch.service (enabled), the gate as a drop-in of kubelet's unit,
and the same settings as modules-load.d and sysctl.d files. Every file appears
whole or not at all. Previous files are kept, and "nodegate uninstall" puts them
back. On the running machine systemd reads its units again. Units start only with
--start, by the systemd of --root. If a package installed the very same binary,
that binary and the package's units are used.`,
		Example: `  nodegate install                           on this machine
  nodegate install --root /mnt/image         into an image
  nodegate install --policy my.hcl --dry-run what would be written?`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if start && dryRun {
				return errors.New("--dry-run changes nothing: leave out --start")
			}
			h, err := o.machine()
			if err != nil {
				return err
			}
			defer h.Close()
			if err := newEnough(h, assess, c.ErrOrStderr()); err != nil {
				return err
			}
			if err := needRoot("install", ", or see what it would write: nodegate install --dry-run"); err != nil && h.Live() && !dryRun {
				return err
			}
			if err := notFetched(h); err != nil && !force {
				return err
			}
			p, texts, err := o.load(h, c.ErrOrStderr())
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
			defer cancel()
			fact := func(name string) (any, bool) { return h.Fact(ctx, name) }
			if err := readableThere(fact, p, texts, c.ErrOrStderr()); err != nil {
				return err
			}
			if err := unitThere(c.Context(), h, p.Gate, start, texts, c.ErrOrStderr()); err != nil {
				return err
			}
			binary, err := ownBinary()
			if err != nil {
				return err
			}
			t, err := tree.Open(h.Root)
			if err != nil {
				return err
			}
			defer t.Close()
			program, err := units.FindProgram(t, binary)
			if err != nil {
				return err
			}
			if o.stays {
				program = program.AllowingWritable()
			}
			if !c.Flags().Changed("assess-boot") {
				if assess, err = units.AssessesBoot(t); err != nil {
					return err
				}
			}
			if assess {
				program = program.AssessingBoot()
			}
			lasting, err := o.onAnyMachine(h, p, texts, c.ErrOrStderr())
			if err != nil {
				return err
			}
			files, err := units.Files(lasting, texts, program)
			if err == nil {
				err = units.Alone(t, files)
			}
			if err != nil {
				return err
			}
			if dryRun {
				changes, err := units.Plan(t, files, force)
				return printChanges(c.OutOrStdout(), t, changes, "would be installed", err)
			}
			started := units.Started(p)
			changes, err := units.Install(t, files, force)
			if err == nil && (len(changes) > 0 || untold(c.Context(), h, p.Gate.Unit, c.ErrOrStderr())) {
				err = tellSystemd(c.Context(), h, started, c.ErrOrStderr())
			}
			if err == nil && start {
				err = startUnits(c.Context(), h, started)
			}
			if undone, unread := h.GateUndone(p.Gate.Unit); err == nil && unread == nil && undone != "" {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: %s takes the gate out of %s again, by an empty ExecStartPre=: it starts unproven; "+
					"take the line out, or name the file so that it sorts before ours\n", undone, p.Gate.Unit)
			}
			return printChanges(c.OutOrStdout(), t, changes, "installed", err)
		},
	}
	o.policyFlags(c)
	o.guardFlag(c)
	o.copied, o.lint = true, true
	c.Flags().BoolVar(&start, "start", false, "then start the units, by the systemd that runs below --root")
	c.Flags().BoolVar(&assess, "assess-boot", false,
		"call a boot good only where the node passes: where systemd-boot counts boots, a new kernel or image that does not pass is given up; "+
			"kept by later installs, until one has --assess-boot=false")
	c.Flags().BoolVar(&force, "force", false,
		"overwrite files that were changed since nodegate wrote them; also where an export has the node fetch its binary")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be written and write nothing")
	return c
}

// newEnough returns an error where systemd would not do what the units ask for. A tree
// that has no systemd yet gets one.
func newEnough(h *host.Host, assess bool, stderr io.Writer) error {
	version, _, err := h.SystemdVersion()
	exists := func(name string) bool {
		usr, _ := h.Files.Exists("/usr/lib/systemd/" + name)
		split, _ := h.Files.Exists("/lib/systemd/" + name)
		return usr || split
	}
	switch {
	case err != nil && exists("systemd"): // before 232 it has no such library
		fmt.Fprintf(stderr, "nodegate: %v; nodegate needs systemd %d\n", err, units.OldestSystemd)
	case err == nil && version < units.OldestSystemd:
		return fmt.Errorf("nodegate needs systemd %d, this is %d: kubelet could start without its gate, and watch would not run",
			units.OldestSystemd, version)
	case err == nil && assess && !exists("system/boot-complete.target"):
		return fmt.Errorf("--assess-boot: systemd %d has no boot-complete.target, so nothing would ask whether the boot is good", version)
	}
	return nil
}

// notFetched returns an error where an export has the node fetch its binary: at the next boot that one would take the place of ours.
func notFetched(h *host.Host) error {
	fetched, err := h.Files.Exists(units.FetchFile)
	if err != nil || !fetched {
		return err
	}
	return fmt.Errorf("%s: this node's nodegate comes from an export, which puts its own binary back at every boot: export again. To install "+
		"in its stead, first remove that file, and %s and *.service.d/10-nodegate-fetch.conf from where systemd has them (--force leaves them)",
		strings.TrimSuffix(h.Root, "/")+units.FetchFile, units.FetchUnit)
}

func newUninstall() *cobra.Command {
	var o options
	var force, back, stop bool
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove everything that install wrote, and put back the previous files",
		Example: `  nodegate uninstall
  nodegate uninstall --revert                also put the running machine's settings back
  nodegate uninstall --root /mnt/image`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := o.machine()
			if err != nil {
				return err
			}
			defer h.Close()
			t, err := tree.Open(h.Root)
			if err != nil {
				return err
			}
			defer t.Close()
			if back && !h.Live() {
				return errors.New("--revert is for the running machine: a file tree has no settings; leave it out")
			}
			changes, err := units.Uninstall(t, force)
			if err == nil && (len(changes) > 0 || left(c.Context(), h, c.ErrOrStderr())) {
				err = tellSystemd(c.Context(), h, nil, c.ErrOrStderr())
			}
			if err == nil && stop {
				err = stopUnits(c.Context(), h)
			}
			err = printChanges(c.OutOrStdout(), t, changes, "uninstalled", err)
			switch {
			case err != nil || !h.Live():
			case back:
				err = revertAll(c.Context(), h, force, false, c.OutOrStdout())
			default:
				offerRevert(c.ErrOrStderr())
			}
			if err == nil && h.Live() {
				removeProbes(c)
			}
			return err
		},
	}
	c.Flags().BoolVar(&stop, "stop", false,
		"then stop the units, by the systemd that runs below --root; on a running machine that is done anyway")
	c.Flags().BoolVar(&back, "revert", false, "also put back the settings of the running machine, as revert does")
	c.Flags().StringVar(&o.root, "root", "/", "`DIR` with the file tree of the machine")
	c.Flags().BoolVar(&force, "force", false, "also remove or replace files that were changed since nodegate wrote them")
	return c
}

// removeProbes removes what killed probes left in this network namespace. Without CAP_NET_ADMIN or /proc no probe ran here. A failure
// is only reported: the installation is gone by then, and a package's removal must not stop there.
func removeProbes(c *cobra.Command) {
	ctx, cancel := context.WithTimeout(c.Context(), 30*time.Second)
	defer cancel()
	removed, err := datapath.Clean(ctx)
	for _, name := range removed {
		fmt.Fprintln(c.OutOrStdout(), "removed", name)
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(c.ErrOrStderr(), "nodegate: the leftovers of a killed probe, if any, are still there: %v\n", err)
	}
}

// readableThere returns an error where the policy means something else without the
// values that are given for its variables: on the node nobody gives them. fact is
// nil where no fact of the node is known.
func readableThere(fact func(name string) (any, bool), p *policy.Policy, texts []policy.File, stderr io.Writer) error {
	there, diags := policy.Load(texts, policy.Options{Checks: catalog.Names(), Fact: fact})
	if !diags.HasErrors() && reflect.DeepEqual(p, there) {
		return nil
	}
	policy.WriteDiagnostics(stderr, texts, diags)
	return errors.New("the node reads the policy without --var, --var-file and NODEGATE_VAR_NAME, and so as another one: " +
		"write the values as the variables' defaults")
}

// onAnyMachine returns p with the modules and parameters of an evaluation without facts, as an export has them: the files that
// systemd reads at boot go with the disk, and an image that was made on one machine is used by others. apply knows the facts.
func (o options) onAnyMachine(h *host.Host, p *policy.Policy, texts []policy.File, stderr io.Writer) (*policy.Policy, error) {
	o.noFacts = true
	var mistakes bytes.Buffer // what is no error was said already
	blind, err := o.evaluate(h, texts, &mistakes)
	if err != nil {
		_, printed := mistakes.WriteTo(stderr)
		return nil, errors.Join(err, printed)
	}
	lasting := *p
	lasting.Modules, lasting.Sysctls = blind.Modules, blind.Sysctls
	return &lasting, nil
}

// unitThere returns an error where the unit that the gate is for does not exist: what
// starts kubelet there would not be held.
func unitThere(ctx context.Context, h *host.Host, g policy.Gate, start bool, texts []policy.File, stderr io.Writer) error {
	lacks, likely, err := h.LacksUnit(g.Unit)
	if err != nil || !lacks || g.MayLack {
		return err
	}
	if start && h.SystemdHas(ctx, g.Unit) { // a container's mounts show a part of the files only
		return nil
	}
	return printDiagnostics(stderr, texts, hcl.Diagnostics{{
		Severity: hcl.DiagError, Summary: "No such unit", Subject: &g.UnitAt,
		Detail: fmt.Sprintf("There is no unit %s in %s: nothing would be held. %s. Name kubelet's unit: gate { unit = \"NAME.service\" }. "+
			"If it is installed later, write unit_absent = \"allow\" in the gate block.", g.Unit, h.Root, upper(host.LikeKubelet(likely))),
	}})
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func printChanges(w io.Writer, t *tree.Tree, changes []units.PathChange, done string, err error) error {
	var full error
	if err == nil && len(changes) == 0 {
		_, full = fmt.Fprintln(w, "no change")
	}
	for _, ch := range changes {
		fmt.Fprintf(w, "  %-8s %s\n", ch.Action, t.Full(ch.Path))
	}
	if err == nil && len(changes) > 0 {
		_, full = fmt.Fprintf(w, "%s: %s\n", done, report.Count(len(changes), "path"))
	}
	return errors.Join(err, full)
}
