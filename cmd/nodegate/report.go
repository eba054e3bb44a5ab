package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/fleet"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host/file"
)

func newReport() *cobra.Command {
	var o outputs
	var consoles []string
	c := &cobra.Command{
		Use:   "report [FILE...]",
		Short: "Merge the reports of many nodes and show which nodes differ",
		Long: `Report merges the reports of many nodes into one table. It reads the output of
"nodegate check --format json", the gate's /run/nodegate/report.json and watch's
/run/nodegate/watch.json. A file may contain several reports, one after another;
- is standard input.

--console reads the console report of a held node from its console log. The gate
writes this report to the console in lines that begin with nodegate-report/1.

Checks come in the order of their worst verdict, then of the number of nodes
that do not pass; those that differ only in the value come after them. Identical
nodes are shown as one.

Exit status: 0 all nodes pass, 1 some nodes fail, 2 a file is not a report (the
other files are still shown), 3 some nodes are unknown.`,
		Example: `  nodegate report reports/*.json
  nodegate report reports/*.json
  for n in $(cat nodes); do ssh $n cat /run/nodegate/watch.json; done |
    nodegate report -
  aws ec2 get-console-output --instance-id i-0123 --output text --latest |
    nodegate report --console -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(consoles)+len(args) == 0 {
				return errors.New("report needs FILE..., the reports of nodes: make one with `nodegate check -o NAME.json`")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			debug.SetGCPercent(10) // all input stays in memory, so memory matters more than time
			reports, errs := readReports(args, c.InOrStdin(), report.Decode)
			held, torn := readReports(consoles, c.InOrStdin(), report.DecodeConsole)
			reports, errs = append(reports, held...), append(errs, torn...)
			f, twice := fleet.Merge(reports)
			errs = append(errs, twice...)
			for _, err := range errs {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: %v\n", err)
			}
			if len(f.Nodes) == 0 {
				return exit(exitUsage)
			}
			if err := o.writeDocument(c.OutOrStdout(), fleet.NewDocument(f), func(w io.Writer) error {
				return fleet.Text(w, f, o.verbose, o.paint(c.OutOrStdout()))
			}); err != nil {
				return err
			}
			return fleetCode(f, errs)
		},
	}
	c.Flags().StringArrayVar(&consoles, "console", nil, "read the console reports of held nodes from the console log in `FILE` (- is "+
		"standard input)")
	o.formatFlags(c, "text", "json")
	c.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "list every node by name, and the checks with the same result on all nodes")
	return c
}

func fleetCode(f fleet.Fleet, errs []error) error {
	if len(errs) > 0 {
		return exit(exitUsage)
	}
	return exitCode(f.Verdict())
}

// decoder reads the reports in one file; the string is the file's name.
type decoder func(string, io.Reader) ([]report.Read, error)

// readReports reads all files, and returns an error for each unreadable one.
func readReports(names []string, stdin io.Reader, decode decoder) (reports []report.Read, errs []error) {
	for _, name := range names {
		read, err := readReport(name, stdin, decode)
		reports = append(reports, read...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	return reports, errs
}

func readReport(name string, stdin io.Reader, decode decoder) ([]report.Read, error) {
	if info, err := os.Stat(name); name != "-" && err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s is a directory; name its files, for example %s/*.json", name, name)
	}
	in, shown, err := openNamed(name, stdin)
	if err != nil {
		return nil, fmt.Errorf("reading report: %w", err)
	}
	defer in.Close()
	return decode(shown, in)
}

// openNamed opens a file, or standard input for "-", and returns its name for error messages.
func openNamed(name string, stdin io.Reader) (in io.ReadCloser, shown string, err error) {
	if name == "-" {
		return io.NopCloser(stdin), "standard input", nil
	}
	in, err = file.OpenInput(name)
	return in, name, err
}
