package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// machineRules runs the machine's own iptables and nft. Looking at one backend
// only would miss rules that an older kube-proxy left in the other.
type machineRules struct{}

// Dumps never gives iptables-legacy-save a table: it would create it.
func (machineRules) Dumps(ctx context.Context, read func(source string, r io.Reader) error) error {
	var errs []error
	ran := 0
	for _, family := range []string{"iptables", "ip6tables"} {
		backends := []string{family + "-nft-save", family + "-legacy-save"}
		if _, err := lookPath(backends[0]); err != nil {
			backends = []string{family + "-save"} // before 1.8 there is one
		}
		for _, program := range backends {
			if _, err := lookPath(program); err != nil {
				continue
			}
			ran++
			errs = append(errs, stream(ctx, read, program))
		}
	}
	if _, err := lookPath("nft"); err == nil {
		ran++
		tables, err := run(ctx, "nft", "list", "tables")
		errs = append(errs, err)
		for _, family := range []string{"ip", "ip6"} {
			if bytes.Contains(tables, []byte("table "+family+" kube-proxy\n")) {
				errs = append(errs, stream(ctx, read, "nft", "-j", "list", "table", family, "kube-proxy"))
			}
		}
	}
	if ran == 0 {
		return errors.New("neither iptables nor nft is installed: there is nothing that could tell the rules")
	}
	return errors.Join(errs...)
}

// stream runs a program and hands over its output while it comes.
func stream(ctx context.Context, read func(string, io.Reader) error, name string, args ...string) error {
	path, err := lookPath(name)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=" + searchPath, "LC_ALL=C"}
	cmd.WaitDelay = time.Second
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	readErr := read(strings.Join(append([]string{name}, args...), " "), out)
	// Whatever the reader left must be taken, or the program never ends.
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(complaint.String()))
	}
	return readErr
}

// Journal hands the last hour of a unit's journal to read, as lines that begin
// with an ISO time.
func Journal(ctx context.Context, unit string, read func(io.Reader) error) error {
	return stream(ctx, func(_ string, r io.Reader) error { return read(r) },
		"journalctl", "--no-pager", "--quiet", "--output=short-iso", "--since=-1h", "--unit="+unit)
}
