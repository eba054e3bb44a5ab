package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host/file"
)

func newVersion() *cobra.Command {
	var o outputs
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the commit and the platform",
		Example: "  nodegate version -o json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.writeDocument(c.OutOrStdout(), thisBuild(), func(w io.Writer) error {
				_, err := fmt.Fprintln(w, fullVersion())
				return err
			})
		},
	}
	o.formatFlags(c, "text", "json")
	return c
}

// build is the JSON document of version.
type build struct {
	APIVersion string `json:"apiVersion"`       // nodegate/v1
	Kind       string `json:"kind"`             // Version
	Version    string `json:"version"`          // of nodegate
	Commit     string `json:"commit,omitempty"` // the first 12 digits
	OS         string `json:"os"`               // linux
	Arch       string `json:"arch"`             // of the binary, in Go's words
	Go         string `json:"go"`               // the compiler's version
}

func thisBuild() build {
	b := build{APIVersion: report.APIVersion, Kind: "Version", Version: version, OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Commit = s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return b
}

func fullVersion() string {
	b := thisBuild()
	commit := b.Commit
	if commit != "" {
		commit = " " + commit
	}
	return fmt.Sprintf("nodegate %s%s %s/%s %s", b.Version, commit, b.OS, b.Arch, b.Go)
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
