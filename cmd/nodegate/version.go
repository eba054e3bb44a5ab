package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"nodegate/internal/host/file"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the platform",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), fullVersion())
			return err
		},
	}
}

func fullVersion() string {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = " " + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return fmt.Sprintf("nodegate %s%s %s/%s %s", version, revision, runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// maxBinary bounds the size of the binary; it is far above the size of any build.
const maxBinary = 256 << 20

// ownBinary returns the content of the running program.
func ownBinary() ([]byte, error) {
	name, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the nodegate binary: %w", err)
	}
	b, err := file.Read(filepath.Clean(name), maxBinary)
	if err != nil {
		return nil, fmt.Errorf("reading the nodegate binary: %w", err)
	}
	return b, nil
}
