package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host/file"
	"nodegate/units"
)

func newStatus() *cobra.Command {
	var o options
	name := report.WatchFile
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what watch found: drift, corrections, and fights with other programs",
		Long: `Status reads what "nodegate watch" last wrote to ` + report.WatchFile + `.
It does not inspect the machine; "nodegate check" does.

Exit status: as that of check. 3 also if watch does not run or is late.`,
		Example: `  nodegate status
  nodegate status --format json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.format != "text" && o.format != "json" {
				return fmt.Errorf("--format is text or json; %q is neither", o.format)
			}
			text, err := file.ReadInput(name, report.MaxFile)
			if errors.Is(err, fs.ErrNotExist) {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: %s is not there: watch has not run since this machine started; run: systemctl start %s\n",
					name, units.WatchUnit)
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
			err = o.write(c.OutOrStdout(), func(w io.Writer) error {
				if o.format == "json" {
					_, err := w.Write(text)
					return err
				}
				return d.Text(w, now, o.paint(c.OutOrStdout()), units.WatchUnit)
			})
			if err != nil {
				return err
			}
			return code(d.Verdict(now))
		},
	}
	o.formatFlags(c, "it", "text", "json")
	c.Flags().StringVar(&name, "file", name, "read `FILE`, for example of another machine")
	return c
}
