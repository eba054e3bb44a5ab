package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"nodegate/internal/host/file"
	"nodegate/policy"
)

func newFmt() *cobra.Command {
	var check bool
	c := &cobra.Command{
		Use:   "fmt [FILE or directory]...",
		Short: "Write policy files in the one layout",
		Long: `Fmt rewrites policy files with two spaces a level and aligned equal signs, and
prints the names of those it changed. Without a file it reads standard input and
writes standard output. A file with a syntax error is not changed.`,
		Example: `  nodegate fmt my.hcl
  nodegate fmt --check policy.d        exit status 1 if one would change
  nodegate fmt < my.hcl`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				text, err := io.ReadAll(io.LimitReader(c.InOrStdin(), policy.MaxFileSize))
				if err != nil {
					return err
				}
				out, err := layout(c.ErrOrStderr(), policy.File{Name: "standard input", Text: text})
				if err == nil {
					_, err = exact(c.OutOrStdout()).Write(out)
				}
				return err
			}
			return fmtFiles(c, args, check)
		},
	}
	c.Flags().BoolVar(&check, "check", false, "change nothing; exit status 1 if a file would change")
	return c
}

func fmtFiles(c *cobra.Command, names []string, check bool) error {
	files, err := readPolicies(names)
	if err != nil {
		return err
	}
	var result error
	for _, f := range files {
		if strings.HasSuffix(f.Name, ".json") {
			continue // JSON has its own formatters
		}
		out, err := layout(c.ErrOrStderr(), f)
		if err != nil {
			result = errors.Join(result, err)
			continue
		}
		if bytes.Equal(out, f.Text) {
			continue
		}
		fmt.Fprintln(c.OutOrStdout(), f.Name)
		if check {
			result = errors.Join(result, exit(exitFail))
			continue
		}
		result = errors.Join(result, rewrite(f.Name, out))
	}
	return result
}

// rewrite replaces a file's content. A symbolic link stays one: the file that it leads to changes.
func rewrite(name string, text []byte) error {
	name, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	return file.Replace(name, text, info.Mode().Perm())
}

// layout is the file in its one layout; what is no HCL is printed as mistakes.
func layout(stderr io.Writer, f policy.File) ([]byte, error) {
	out, diags := policy.Layout(f)
	return out, printDiagnostics(stderr, []policy.File{f}, diags)
}
