package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nodegate/internal/host"
	"nodegate/internal/host/file"
	"nodegate/internal/plain"
	"nodegate/policy"
	"nodegate/units"
)

// guardFlag makes the verb refuse a policy that users other than root may write: the
// policy decides what root does.
func (o *policyInput) guardFlag(c *cobra.Command) {
	o.guarded = true
	c.Flags().BoolVar(&o.allowWritable, "allow-writable", false, "use the policy even if users other than root may write it")
}

// trust decides once, for every verb, what a policy may do that users other than root may write or replace: its files and directories,
// every directory above them, and the same for the targets of symbolic links. A verb that changes or holds the node refuses it; a file
// that the call names may belong to the caller. A verb that only looks reads it, and runs none of its programs as root.
func (o *policyInput) trust(h *host.Host, files []policy.File) error {
	err := o.checkWritable(h, files)
	switch {
	case err == nil || o.allowWritable:
		return nil
	case o.guarded:
		return err
	case h.Exec != nil && os.Geteuid() == 0:
		h.Exec = func(context.Context, []string) (host.Ran, error) { return host.Ran{}, fmt.Errorf("not run: %w", err) }
	}
	return nil
}

// checkWritable returns an error for each place by which users other than root may change the policy.
func (o *policyInput) checkWritable(h *host.Host, files []policy.File) error {
	below := filepath.Join(h.Root, units.PolicyDir)
	paths := slices.Concat([]string{below}, o.policies, o.varFiles)
	for _, f := range files {
		if !strings.HasPrefix(f.Name, "builtin:") {
			paths = append(paths, f.Name)
		}
	}
	orAllow := ""
	if o.guarded {
		orAllow = ", or use --allow-writable"
	}
	var errs []error
	seen := map[file.Opening]bool{}
	for _, p := range paths {
		root, installed := "/", p == below || strings.HasPrefix(p, below+"/")
		if installed { // the directories above an image do not exist on its nodes
			root = h.Root
		}
		found, err := file.WhoMayReplace(root, p)
		if err != nil && (!installed || !errors.Is(err, fs.ErrNotExist)) {
			errs = append(errs, err)
		}
		for _, open := range found {
			if seen[open] || !installed && o.copied && open.Mend != "chmod go-w" {
				continue
			}
			seen[open] = true
			errs = append(errs, fmt.Errorf("%s is writable by users other than root, who could then decide what root does; run `%s %s`%s",
				open.Place, open.Mend, plain.Quote(open.Place), orAllow))
			o.stays = o.stays || installed
		}
	}
	return errors.Join(errs...)
}
