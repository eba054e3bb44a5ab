package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/cmd/nodegate/internal/watch"
	"nodegate/internal/host"
	"nodegate/internal/kube"
)

func newPublish() *cobra.Command {
	var follow, condition string
	c := &cobra.Command{
		Use: "publish", Hidden: true, // the DaemonSet calls it
		Short: "Write the verdicts of watch as a Node condition",
		Long: `Publish inspects nothing. It publishes the verdicts that watch writes to FILE, for
the Node in $NODE_NAME, with the Pod's service account. The DaemonSet of
"nodegate export daemonset" uses it. With an empty --condition it publishes
nothing and waits until it is stopped. On a node watch publishes by itself.`,
		Example: `  nodegate publish --follow /run/nodegate/watch.json --condition NodegatePassed`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			node := os.Getenv("NODE_NAME")
			switch {
			case condition == "":
				fmt.Fprintln(c.ErrOrStderr(), "nodegate: --condition is empty: publishing nothing")
				<-c.Context().Done() // Kubernetes would restart a Pod that exits
				return nil
			case node == "":
				return errors.New("NODE_NAME is not set; set it to the Pod's spec.nodeName through the downward API")
			}
			cluster := kube.NewPublisher(host.Credential, func(line string) { host.Print(c.ErrOrStderr(), "nodegate: "+report.OneLine(line)) })
			go cluster.Run(c.Context())
			watch.Follow(c.Context(), follow, condition, node, 2*time.Second, cluster.Set)
			return nil
		},
	}
	c.Flags().StringVar(&follow, "follow", "", "publish the verdicts that watch writes to `FILE`")
	c.Flags().StringVar(&condition, "condition", "", "the condition's `TYPE`")
	_ = c.MarkFlagRequired("follow") // fails only if the flag does not exist
	return c
}
