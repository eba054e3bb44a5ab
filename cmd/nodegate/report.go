package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"nodegate/internal/fleet"
	"nodegate/internal/host/file"
	"nodegate/internal/report"
)

func newReport() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "report FILE...",
		Short: "Merge many nodes' reports and show which nodes differ from the rest",
		Long: `Report merges the reports of many nodes into one table. It reads what nodegate
check --format json writes, /run/nodegate/report.json of the gate, and
/run/nodegate/watch.json. A file may contain several, one after the other; - is
standard input.

Checks in which a few nodes differ from the rest come first, by verdict or only by
value. Nodes that are alike are shown as one.

Exit status: 0 all nodes pass, 1 some fail, 2 a file is no report (the others are
shown all the same), 3 some are unknown.`,
		Example: `  nodegate report reports/*.json
  nodegate report reports/*.json --format html -o fleet.html
  for n in $(cat nodes); do ssh $n cat /run/nodegate/watch.json; done | nodegate report -`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			write, err := o.fleetRenderer(c.OutOrStdout())
			if err != nil {
				return err
			}
			reports, errs := readReports(args, c.InOrStdin())
			f, twice := fleet.Merge(reports)
			errs = append(errs, twice...)
			for _, err := range errs {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: %v\n", err)
			}
			if len(f.Nodes) == 0 {
				return exit(exitUsage)
			}
			if err := o.write(c.OutOrStdout(), func(w io.Writer) error { return write(w, f) }); err != nil {
				return err
			}
			return fleetCode(f, errs)
		},
	}
	o.formatFlags(c, "the table", "text", "json", "html")
	c.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "name every node, and the checks with the same result everywhere")
	return c
}

func fleetCode(f fleet.Fleet, errs []error) error {
	if len(errs) > 0 {
		return exit(exitUsage)
	}
	return code(f.Verdict())
}

func (o *options) fleetRenderer(stdout io.Writer) (func(io.Writer, fleet.Fleet) error, error) {
	switch o.format {
	case "text":
		paint := o.paint(stdout)
		return func(w io.Writer, f fleet.Fleet) error { return fleet.Text(w, f, o.verbose, paint) }, nil
	case "json":
		return fleet.JSON, nil
	case "html":
		return fleet.HTML, nil
	}
	return nil, fmt.Errorf("--format is text, json or html; %q is none of them", o.format)
}

// readReports reads all files, and returns an error for each that cannot be read.
func readReports(names []string, stdin io.Reader) (reports []report.Read, errs []error) {
	for _, name := range names {
		read, err := readReport(name, stdin)
		reports = append(reports, read...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	return reports, errs
}

func readReport(name string, stdin io.Reader) ([]report.Read, error) {
	if name == "-" {
		return report.Decode("standard input", stdin)
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s: a directory; name its files: %s/*.json", name, name)
	}
	f, err := file.OpenInput(name)
	if err != nil {
		return nil, fmt.Errorf("reading report: %w", err)
	}
	defer f.Close()
	return report.Decode(name, f)
}
