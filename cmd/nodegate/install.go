package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/host/tree"
	"nodegate/policy"
	"nodegate/units"
)

// installer is one call of install.
type installer struct {
	policyInput
	force, dryRun, start bool
}

func newInstall() *cobra.Command {
	var i installer
	c := &cobra.Command{
		Use:   "install [POLICY]",
		Short: "Install nodegate on a machine or in an image",
		Long: `Install writes these files below --root:
  the binary, the policy, and the journal that uninstall reads
  nodegate-apply.service and nodegate-watch.service, both enabled
  the gate, as a drop-in of kubelet's unit
  modules-load.d and sysctl.d files with the same settings

Every file is written completely or not at all. Install keeps the previous
files, and "nodegate uninstall" restores them. On the running machine, install
makes systemd reload its units. It starts them only with --start, through the
systemd of --root. If a package has installed the same binary, install uses
that binary and the package's units.`,
		Example: `  nodegate install                              on this machine
  nodegate install --root /mnt/image            in an image
  nodegate install --policy my.hcl --dry-run    show the files, write nothing`,
		Args: policyArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if i.start && i.dryRun {
				return errors.New("--dry-run changes nothing; leave out --start")
			}
			h, err := i.machine()
			if err != nil {
				return err
			}
			defer h.Close()
			p, texts, err := i.readPolicy(c, h)
			if err != nil {
				return err
			}
			t, err := tree.Open(h.Root)
			if err != nil {
				return err
			}
			defer t.Close()
			files, err := i.files(c, h, t, p, texts)
			if err != nil {
				return err
			}
			if i.dryRun {
				changes, err := units.Plan(t, files, i.force)
				return printChanges(c.OutOrStdout(), t, changes, "would be installed", err)
			}
			return i.write(c, h, t, p, files)
		},
	}
	i.policyFlags(c)
	i.guardFlag(c)
	i.copied, i.lint, i.ships = true, true, true
	c.Flags().BoolVar(&i.start, "start", false, "start the units after installing, through the systemd of --root")
	c.Flags().BoolVar(&i.force, "force", false,
		"overwrite files that were changed after nodegate wrote them; install even if the node downloads its binary (export)")
	c.Flags().BoolVar(&i.dryRun, "dry-run", false, "show the files that would be written, and write nothing")
	return c
}

// readPolicy returns the policy, if this machine can have nodegate and the policy can be used on it.
func (i *installer) readPolicy(c *cobra.Command, h *host.Host) (*policy.Policy, []policy.File, error) {
	if err := checkSystemd(h, c.ErrOrStderr()); err != nil {
		return nil, nil, err
	}
	if err := needRoot("install", ", or preview its changes with `nodegate install --dry-run`"); err != nil && h.Live() && !i.dryRun {
		return nil, nil, err
	}
	if err := checkNotFetched(h); err != nil && !i.force {
		return nil, nil, err
	}
	p, texts, err := i.load(h, c.ErrOrStderr())
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
	defer cancel()
	if err := needSystemd(h, i.start, "--start"); err != nil {
		return nil, nil, err
	}
	if err := checkUnit(c.Context(), h, p.Gate, i.start, texts, c.ErrOrStderr()); err != nil {
		return nil, nil, err
	}
	warnOfPrograms(ctx, h, p, c.ErrOrStderr())
	return p, texts, nil
}

// files returns the files to install, if systemd would start nodegate's units and the gate with them.
func (i *installer) files(c *cobra.Command, h *host.Host, t *tree.Tree, p *policy.Policy, texts []policy.File) ([]units.File, error) {
	binary, err := ownBinary()
	if err != nil {
		return nil, err
	}
	program, err := units.FindProgram(t, binary)
	if err != nil {
		return nil, err
	}
	if i.stays {
		program = program.AllowingWritable()
	}
	lasting, err := i.onAnyMachine(h, p, texts, c.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	files, err := units.Files(lasting, texts, program)
	if err == nil {
		err = units.Alone(t, files)
	}
	if err == nil {
		err = checkGateFirst(plannedHost(h, files), p.Gate)
	}
	if err == nil {
		err = checkBoot(c.Context(), plannedHost(h, files), p.Gate, c.ErrOrStderr())
	}
	return files, err
}

// write installs the files, and notifies systemd.
func (i *installer) write(c *cobra.Command, h *host.Host, t *tree.Tree, p *policy.Policy, files []units.File) error {
	started := units.Started()
	changes, err := units.Install(t, files, i.force)
	if err == nil {
		relabel(c.Context(), h, changes, c.ErrOrStderr())
	}
	if err == nil && (len(changes) > 0 || reloadPending(c.Context(), h, p.Gate.Unit, c.ErrOrStderr())) {
		err = tellSystemd(c.Context(), h, started, c.ErrOrStderr())
	}
	if err == nil && i.start {
		err = startUnits(c.Context(), h, started)
	}
	if undone, unread := h.GateUndone(p.Gate.Unit); err == nil && unread == nil && undone != "" {
		fmt.Fprintf(c.ErrOrStderr(), "nodegate: %s removes the gate from %s with an empty ExecStartPre=, so the unit starts unproven; "+
			"delete that line, or rename the file so that it sorts before nodegate's\n", undone, p.Gate.Unit)
	}
	if err := printChanges(c.OutOrStdout(), t, changes, "installed", err); err != nil || len(changes) == 0 {
		return err
	}
	return printNext(c.Context(), c.OutOrStdout(), h, p, i.start)
}

// relabel labels the created files; replaced files keep their labels. A failure is only reported, because the files are complete.
func relabel(ctx context.Context, h *host.Host, changes []units.PathChange, stderr io.Writer) {
	var created []string
	for _, ch := range changes {
		if ch.Action == units.Create {
			created = append(created, ch.Path)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := h.Relabel(ctx, created); err != nil {
		fmt.Fprintf(stderr, "nodegate: setting SELinux labels: %v\n", err)
	}
}

// checkSystemd returns an error if systemd is too old for the units. A tree without systemd
// passes: it may get one later.
func checkSystemd(h *host.Host, stderr io.Writer) error {
	version, _, err := h.SystemdVersion()
	usr, _ := h.Files.Exists("/usr/lib/systemd/systemd")
	split, _ := h.Files.Exists("/lib/systemd/systemd")
	switch {
	case err != nil && (usr || split): // before version 232 systemd has no such library
		fmt.Fprintf(stderr, "nodegate: %v; nodegate needs systemd %d or later\n", err, units.OldestSystemd)
	case err == nil && version < units.OldestSystemd:
		return fmt.Errorf("nodegate needs systemd %d or later; this is systemd %d: kubelet could start without its gate, and watch would not run",
			units.OldestSystemd, version)
	}
	return nil
}

// checkNotFetched returns an error if an export makes the node download its binary: at the next boot the download would replace ours.
func checkNotFetched(h *host.Host) error {
	fetched, err := h.Files.Exists(units.FetchFile)
	if err != nil || !fetched {
		return err
	}
	return fmt.Errorf("%s: this node's nodegate comes from an export, which restores its own binary at every boot; export again. To install "+
		"instead, first remove that file, %s and *.service.d/10-nodegate-fetch.conf from systemd's directories (--force leaves them)",
		strings.TrimSuffix(h.Root, "/")+units.FetchFile, units.FetchUnit)
}

func newUninstall() *cobra.Command {
	var o policyInput
	var force, back, stop, dryRun bool
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the files that install wrote and restore the previous ones",
		Example: `  nodegate uninstall
  nodegate uninstall --revert    also restore the running machine's settings
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
				return errors.New("--revert works on the running machine; leave it out for a file tree, which has no running settings")
			}
			if dryRun {
				changes, err := units.PlanUninstall(t, force)
				return printChanges(c.OutOrStdout(), t, changes, "would be uninstalled", err)
			}
			if err := needRoot("uninstall", ", or preview its changes with `nodegate uninstall --dry-run`"); err != nil && h.Live() {
				return err
			}
			if err := needSystemd(h, stop, "--stop"); err != nil {
				return err
			}
			changes, err := units.Uninstall(t, force)
			if err == nil && (len(changes) > 0 || unitsLeft(c.Context(), h, c.ErrOrStderr())) {
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
			return err
		},
	}
	c.Flags().BoolVar(&stop, "stop", false,
		"stop the units after uninstalling, through the systemd of --root; on a running machine this always happens")
	c.Flags().BoolVar(&back, "revert", false, "also restore the settings of the running machine, as revert does")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "show the files that would be removed or restored, and write nothing")
	c.Flags().StringVar(&o.root, "root", "/", "use the machine's file tree in `DIR`")
	c.Flags().BoolVar(&force, "force", false, "also remove or replace files that were changed after nodegate wrote them")
	return c
}

// onAnyMachine returns p with the modules and sysctls of an evaluation without facts, as an export has them: the files that
// systemd reads at boot move with the disk, and an image that was made on one machine runs on others. apply knows the facts.
func (o policyInput) onAnyMachine(h *host.Host, p *policy.Policy, texts []policy.File, stderr io.Writer) (*policy.Policy, error) {
	o.noFacts = true
	var mistakes bytes.Buffer // warnings were printed already
	blind, err := o.evaluate(h, texts, &mistakes)
	if err != nil {
		_, printed := mistakes.WriteTo(stderr)
		return nil, errors.Join(err, printed)
	}
	lasting := *p
	lasting.Modules, lasting.Sysctls, lasting.Sysfs = blind.Modules, blind.Sysctls, blind.Sysfs
	return &lasting, nil
}

// checkUnit returns an error if the gate's unit does not exist: kubelet would then start
// through another unit, and would not be held.
func checkUnit(ctx context.Context, h *host.Host, g policy.Gate, start bool, texts []policy.File, stderr io.Writer) error {
	lacks, likely, err := h.LacksUnit(g.Unit)
	if err != nil || !lacks || g.MayLack {
		return err
	}
	if start && h.SystemdHas(ctx, g.Unit) { // a container's mounts may show only part of the files
		return nil
	}
	where := ""
	if builtin, is := strings.CutPrefix(strings.TrimSuffix(g.UnitAt.Filename, ".hcl"), "builtin:"); is {
		where = fmt.Sprintf(" The gate block goes into a policy of your own with use %q {}: nodegate install FILE.hcl.", builtin)
	}
	return printDiagnostics(stderr, texts, hcl.Diagnostics{{
		Severity: hcl.DiagError, Summary: "No such unit", Subject: &g.UnitAt,
		Detail: fmt.Sprintf("Unit %s does not exist in %s, so nothing would be held. %s. Name kubelet's unit: gate { unit = \"NAME.service\" }. "+
			"If it is installed later, write unit_absent = \"allow\" in the gate block.%s", g.Unit, h.Root, upper(host.LikeKubelet(likely)), where),
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
