// Command release builds all files of a release; `make dist` runs it. Two runs on the same commit write the same bytes, wherever the
// checkout is.
//
// VERSION names the release. SOURCE_DATE_EPOCH is its time in seconds since 1970; the default is the time of the commit.
// SOURCE_COMMIT is the commit if this is not a git checkout. NODEGATE_SIGNING_KEY is the file of a minisign secret key,
// NODEGATE_SIGNING_PASSWORD its password. Only a build between two tags may be unsigned.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// release holds the values that all steps share.
type release struct {
	version string
	time    time.Time
	commit  string // "" if unknown
	dir     string // directory of the published files
	work    string // directory of the files to pack, removed at the end
}

func main() {
	var err error
	switch {
	case len(os.Args) == 2:
		err = run(os.Args[1], release.all)
	case len(os.Args) == 3 && os.Args[1] == "deb":
		err = run(os.Args[2], release.deb)
	case len(os.Args) == 4 && os.Args[1] == "extension":
		err = runExtension(os.Args[2], os.Args[3])
	default:
		fmt.Fprintln(
			os.Stderr,
			"usage: release DIR   (run it by: make dist)\n       release deb DIR, release extension PROGRAM FILE   (of this machine's architecture)",
		)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

// run runs all steps, which write to dir.
func run(dir string, steps func(release) error) error {
	r := release{version: os.Getenv("VERSION"), commit: sourceCommit(), dir: dir}
	if r.version == "" {
		return fmt.Errorf("VERSION is not set; run it by: make dist")
	}
	var err error
	if r.time, err = sourceTime(); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "nodegate-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("making the folder of the release: %w", err)
	}
	return steps(r)
}

func (r release) all() error {
	for _, step := range []func() error{r.checkKey, r.binaries, r.modules, r.packages, r.image, r.extensions, r.sums, r.sign} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// deb builds the program and the Debian package for this machine's architecture, for tests.
func (r release) deb() error {
	if err := command(r.build(runtime.GOARCH)); err != nil {
		return err
	}
	return r.packagesOf([]string{"deb"}, runtime.GOARCH)
}

// runExtension writes the system extension of one program, for tests.
func runExtension(program, file string) error {
	work, err := os.MkdirTemp("", "nodegate-extension-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	return release{work: work, time: time.Unix(0, 0)}.extension(program, runtime.GOARCH, file)
}

// architectures lists the architectures of binaries, packages and image.
func architectures() []string { return []string{"amd64", "arm64"} }

// binaries builds the static program so that the place of the build does not change it. The version contains the commit. Go's own
// stamp is left out, because an unpacked archive of the commit lacks it.
func (r release) binaries() error {
	for _, arch := range architectures() {
		if err := command(r.build(arch)); err != nil {
			return err
		}
	}
	return nil
}

func (r release) build(arch string) *exec.Cmd {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+r.version, "-o",
		r.binary(arch), "./cmd/nodegate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=")
	return cmd
}

// modules writes beside each binary the list of its modules with their sums, as `go version -m` prints it.
func (r release) modules() error {
	for _, arch := range architectures() {
		cmd := exec.Command("go", "version", "-m", filepath.Base(r.binary(arch)))
		cmd.Dir = r.dir
		list, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("listing the modules of %s: %w", r.binary(arch), err)
		}
		if err := put(r.binary(arch)+".modules", list, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (r release) binary(arch string) string {
	return filepath.Join(r.dir, "nodegate-linux-"+arch)
}

// sourceTime returns the time that all files of the release get.
func sourceTime() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.Command("git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("no git checkout to take the time from (%w); set SOURCE_DATE_EPOCH", err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is seconds since 1970, not %q", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// sourceCommit returns the commit of the sources, or "" if this is not a git checkout or has changes.
func sourceCommit() string {
	if commit := os.Getenv("SOURCE_COMMIT"); commit != "" {
		return commit
	}
	changes, err := exec.Command("git", "status", "--porcelain").Output()
	if err != nil || len(changes) > 0 {
		fmt.Println("the image names no commit: the sources are no git checkout without changes, and SOURCE_COMMIT is not set")
		return ""
	}
	commit, _ := exec.Command("git", "rev-parse", "HEAD").Output()
	return strings.TrimSpace(string(commit))
}

// command runs a program whose output matters only if it fails.
func command(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running %s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}
