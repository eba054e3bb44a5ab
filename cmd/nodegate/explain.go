package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"nodegate/checks/catalog"
)

func newExplain() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [NAME]",
		Short: "Explain a check: symptom, detection, remedy, trade-off, source",
		Example: `  nodegate explain                                  list every check
  nodegate explain sysctl.net.ipv4.ip_forward
  nodegate explain vxlan.checksum
  nodegate explain kubeproxy.dispatch.probability`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			all, err := catalog.Explain()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				for _, e := range all {
					fmt.Fprintf(c.OutOrStdout(), "%-52s %s\n", e.Name, e.Breaks)
				}
				return nil
			}
			i := slices.IndexFunc(all, func(e catalog.Explanation) bool { return e.Name == args[0] })
			if i < 0 {
				return fmt.Errorf("there is no check %q; `nodegate explain` lists them", args[0])
			}
			return all[i].Write(c.OutOrStdout())
		},
	}
}
