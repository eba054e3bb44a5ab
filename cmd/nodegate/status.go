package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host/file"
	"nodegate/units"
)

func newStatus() *cobra.Command {
	var o outputs
	name := report.WatchFile
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what watch found: drift, corrections, fights",
		Long: `Status prints the report that "nodegate watch" writes to
` + report.WatchFile + `. It does not inspect the machine; "nodegate check"
does.

Exit status: as check; also 3 if watch does not run or is late.`,
		Example: `  nodegate status
  nodegate status --format json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := file.ReadInput(name, report.MaxFile)
			if errors.Is(err, fs.ErrNotExist) {
				do := "run `systemctl start " + units.WatchUnit + "`"
				if !installed() {
					do = "nodegate is not installed here: run `nodegate install --start`, or `nodegate check`, which needs no installation"
				}
				why := ": watch has not run since this machine started; " + do
				if name != report.WatchFile {
					why = ""
				}
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: %s does not exist%s\n", name, why)
				return exit(exitUnknown)
			}
			if err != nil {
				return fmt.Errorf("reading the status: %w", err)
			}
			d, err := report.DecodeWatch(text)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			now := time.Now()
			if name == report.WatchFile {
				d.Supersede(report.GatePassed(), now)
			}
			err = o.write(c.OutOrStdout(), func(w io.Writer) error {
				if o.format == "json" {
					return report.JSON(w, d)
				}
				return d.Text(w, now, o.paint(c.OutOrStdout()), units.WatchUnit)
			})
			if err != nil {
				return err
			}
			return exitCode(d.Verdict(now))
		},
	}
	o.formatFlags(c, "text", "json")
	c.Flags().StringVar(&name, "file", name, "read `FILE`, for example from another machine")
	return c
}

// installed reports whether a file of an installation, or of an export, is on this machine.
func installed() bool {
	return slices.ContainsFunc(units.InForce(), func(name string) bool {
		_, err := os.Lstat(name)
		return err == nil
	})
}
