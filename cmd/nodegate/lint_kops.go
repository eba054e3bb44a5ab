package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"nodegate/images/kops"
	"nodegate/internal/report"
)

func lintKops(c *cobra.Command, name string) error {
	text, err := readManifest(c, name)
	if err != nil {
		return fmt.Errorf("reading the manifest: %w", err)
	}
	if name == "-" {
		name = "standard input"
	}
	r, err := kops.Lint(text)
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(c.ErrOrStderr(), "%s:%s\n", name, strings.TrimSuffix(line, "\n"))
		}
		return exit(exitUsage)
	}
	w := c.OutOrStdout()
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s:%d:%d: %s: %s\n    write: %s\n", name, f.Line, f.Column, f.Trap, f.What, f.Do)
	}
	looked := fmt.Sprintf("%s, %s, %s", report.Count(r.Hooks, "hook"), report.Count(r.Assets, "fileAsset"), report.Count(r.Sysctls, "sysctlParameter"))
	if len(r.Findings) > 0 {
		fmt.Fprintf(w, "nodegate: %s in %s\n", report.Count(len(r.Findings), "trap"), looked)
		return exit(exitFail)
	}
	_, err = fmt.Fprintf(w, "ok: no known trap in %s\n", looked)
	return err
}

// readManifest reads one byte more than a manifest may have, so that kops.Lint
// can tell one that is too large.
func readManifest(c *cobra.Command, name string) ([]byte, error) {
	in := c.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return nil, errors.New(name + " is a directory; name a file")
		}
		in = f
	}
	return io.ReadAll(io.LimitReader(in, kops.MaxSize+1))
}
