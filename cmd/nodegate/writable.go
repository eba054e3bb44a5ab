package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
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
func (o *options) guardFlag(c *cobra.Command) {
	o.guarded = true
	c.Flags().BoolVar(&o.allowWritable, "allow-writable", false, "use the policy even if users other than root may write it")
}

// checkWritable returns an error for each file and directory of the policy that users other than
// root may write. A file that install copies may belong to the caller.
func (o *options) checkWritable(h *host.Host, files []policy.File) error {
	if !o.guarded {
		return nil
	}
	below := filepath.Join(h.Root, units.PolicyDir)
	paths := []string{filepath.Dir(below), below}
	paths = append(paths, o.policies...)
	for _, f := range files {
		if !strings.HasPrefix(f.Name, "builtin:") {
			paths = append(paths, f.Name)
		}
	}
	var errs []error
	seen := map[string]bool{}
	for _, p := range paths {
		if seen[p] {
			continue
		}
		seen[p] = true
		mend, err := file.MayOthersWrite(p)
		installed := p == filepath.Dir(below) || strings.HasPrefix(p, below)
		switch {
		case errors.Is(err, fs.ErrNotExist) && installed:
		case err != nil:
			errs = append(errs, err)
		case mend != "" && (installed || !o.copied || mend != "chown root"):
			errs = append(errs, fmt.Errorf("%s is writable by users other than root, who could then decide what root does; run `%s %s`, "+
				"or use --allow-writable", p, mend, plain.Quote(p)))
			o.stays = o.stays || installed
		}
	}
	if o.allowWritable {
		return nil
	}
	return errors.Join(errs...)
}
