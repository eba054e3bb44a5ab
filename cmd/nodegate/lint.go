package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"nodegate/policy"
)

func newLint() *cobra.Command {
	return &cobra.Command{
		Use:   "lint [FILE or directory]...",
		Short: "Say what is wrong with a policy, every mistake at once",
		Example: `  nodegate lint my.hcl
  nodegate lint /etc/nodegate/policy.d`,
		RunE: func(c *cobra.Command, args []string) error {
			o := options{policies: args, root: "/"}
			h, err := o.machine()
			if err != nil {
				return err
			}
			p, _, err := o.load(h, c.ErrOrStderr())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "ok: %s\n", summary(p))
			return err
		},
	}
}

func summary(p *policy.Policy) string {
	return fmt.Sprintf("%s, %s, %s; %s waits %s, then %s", count(len(p.Modules), "module"), count(len(p.Sysctls), "sysctl"),
		count(len(p.Links), "link"), p.Gate.Unit, p.Gate.Budget, p.Gate.OnTimeout)
}
