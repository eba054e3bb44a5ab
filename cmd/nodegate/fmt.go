package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"nodegate/internal/host/file"
	"nodegate/policy"
)

func newFmt() *cobra.Command {
	var check bool
	c := &cobra.Command{
		Use:   "fmt [FILE|DIR]...",
		Short: "Format policy files",
		Long: `Fmt formats policy files: two spaces for each level, and aligned equal signs.
It prints the names of the files that it changed. Without a file it formats
standard input and writes to standard output. It does not change a file with a
syntax error.`,
		Example: `  nodegate fmt my.hcl
  nodegate fmt --check policy.d     exit with 1 if a file would change
  nodegate fmt < my.hcl`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmtInput(c, check)
			}
			if i := slices.IndexFunc(args, isManifest); i >= 0 {
				return fmt.Errorf("%s is YAML, not a policy (*.hcl)", args[i])
			}
			return fmtFiles(c, args, check)
		},
	}
	c.Flags().BoolVar(&check, "check", false, "change nothing; exit with 1 if a file would change")
	return c
}

func fmtInput(c *cobra.Command, check bool) error {
	const name = "standard input"
	text, err := io.ReadAll(io.LimitReader(c.InOrStdin(), policy.MaxFileSize+1))
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	if len(text) > policy.MaxFileSize {
		return fmt.Errorf("%s is larger than %d bytes, the limit for a policy file", name, policy.MaxFileSize)
	}
	out, err := formatFile(c.ErrOrStderr(), policy.File{Name: name, Text: text})
	switch {
	case err != nil:
		return err
	case !check:
		_, err = exactWriter(c.OutOrStdout()).Write(out)
		return err
	case !bytes.Equal(out, text):
		fmt.Fprintln(c.OutOrStdout(), name)
		return exit(exitFail)
	}
	return nil
}

func fmtFiles(c *cobra.Command, names []string, check bool) error {
	files, err := readPolicies(names)
	if err != nil {
		return err
	}
	var result error
	for _, f := range files {
		out, err := formatFile(c.ErrOrStderr(), f)
		if err != nil {
			result = errors.Join(result, err)
			continue
		}
		if bytes.Equal(out, f.Text) {
			continue
		}
		if check {
			fmt.Fprintln(c.OutOrStdout(), f.Name)
			result = errors.Join(result, exit(exitFail))
			continue
		}
		if err := file.Output(f.Name, out, 0o644); err != nil {
			fmt.Fprintf(c.ErrOrStderr(), "nodegate: %v\n", err)
			result = errors.Join(result, exit(exitUsage))
			continue
		}
		fmt.Fprintln(c.OutOrStdout(), f.Name)
	}
	return result
}

// formatFile returns the formatted file, and prints its syntax errors.
func formatFile(stderr io.Writer, f policy.File) ([]byte, error) {
	out, diags := policy.Layout(f)
	return out, printDiagnostics(stderr, []policy.File{f}, diags)
}
