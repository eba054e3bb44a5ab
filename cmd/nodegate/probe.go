package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"nodegate/checks/datapath"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/host/cage"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

const packetsCommand = host.PacketsCommand

func newProbe() *cobra.Command {
	c := &cobra.Command{
		Use:   "probe",
		Short: "Prove the data path with real packets",
		Example: `  nodegate probe bridge
  nodegate probe service 10.96.0.10:53 --proto dns -n 1000`,
	}
	c.AddCommand(newProbeBridge(), newProbeService())
	return c
}

func newProbeBridge() *cobra.Command {
	var o datapath.BridgeOptions
	var written outputs
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "bridge",
		Short: "Prove that a same-node Service reply is translated back",
		Long: `Bridge connects a client to a Service address whose endpoint is on the same
bridge. The bridge, with documentation addresses, and a DNAT rule are in scratch
network namespaces. It proves that the reply comes back translated, or shows
from packet counters whether the request or the reply was lost.

The namespaces have a copy of this machine's rules and settings, which needs
root. The probe changes nothing on the machine, and a killed one leaves nothing
behind.

Exit status: 0 pass, 1 fail (packets lost), 2 usage error, 3 unknown.`,
		Example: "  nodegate probe bridge",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return fmt.Errorf("--timeout must be positive, for example 1s; got %s", timeout)
			}
			ctx, cancel := context.WithTimeout(c.Context(), timeout+20*time.Second)
			defer cancel()
			if !signal.Ignored(syscall.SIGHUP) { // SIGHUP is ignored under nohup
				ctx, cancel = signal.NotifyContext(ctx, syscall.SIGHUP) // clean up when the terminal closes
				defer cancel()
			}
			o.Timeout = timeout
			r, err := datapath.Bridge(ctx, o)
			if err := interrupted(c, ": no verdict"); err != nil {
				return err
			}
			if err != nil {
				return unknown(c, err)
			}
			got := verdict.Pass
			if !r.Pass {
				got = verdict.Fail
			}
			return written.writeProbe(c.OutOrStdout(), r, r.Render, got, fmt.Sprintf("probe bridge, %s", r.Duration))
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", time.Second, "wait this long for the reply")
	written.formatFlags(c, "text", "json")
	return c
}

func newProbeService() *cobra.Command {
	var o datapath.ServiceOptions
	var opts auditOptions
	var proto, pod string
	c := &cobra.Command{
		Use:   "service HOST:PORT",
		Short: "Connect to a Service many times and list the endpoints that fail",
		Long: `Service connects n times, each time from a different port, and reports the
failing fraction with its 95 % confidence interval. Conntrack shows which
endpoint each failed attempt was sent to; nodegate audit --kubeconfig FILE shows
whether the API still has it.

By default it connects from the node itself. A packet of the node never crosses
the bridge between two Pods, so that cannot show a lost reply of a same-node
Service. --from and --netns connect from a Pod's network namespace, and read
conntrack in the node's; run them as root on the node.

"nodegate audit --service NAME --from node" (or pod) sends packets through a
copy of this node's network, and names the rule or route that loses them.

Exit status: 0 no attempt failed, 1 some failed, 2 usage error, 3 unknown.`,
		Example: `  nodegate probe service 10.96.0.1:443 -n 1000
  nodegate probe service 10.96.0.10:53 --proto dns --from prod/web-7d4b9`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			switch proto {
			case "tcp":
				o.Proto = datapath.TCP
			case "dns":
				o.Proto = datapath.DNSUDP
			default:
				return fmt.Errorf("unknown protocol %q for --proto; known protocols: tcp, dns", proto)
			}
			if o.N < 1 {
				return fmt.Errorf("--count must be at least 1; got %d", o.N)
			}
			if pod != "" {
				h, err := host.Open("/")
				if err != nil {
					return err
				}
				o.Netns, err = h.PodNetwork(pod)
				h.Close()
				if err != nil {
					return unknown(c, err)
				}
			}
			ctx, cancel := context.WithTimeout(c.Context(), opts.timeout)
			defer cancel()
			r, err := datapath.Service(ctx, args[0], o)
			if err := interrupted(c, fmt.Sprintf(": %d of %d attempts failed", r.Failed, r.Attempts)); err != nil {
				return err
			}
			if err := refusedCall(err); err != nil {
				return err
			}
			if err != nil && r.Attempts == 0 {
				return unknown(c, err)
			}
			got := verdict.Pass
			switch {
			case err != nil:
				got = verdict.Unknown
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: unknown: %v\n", err)
			case r.Failed > 0:
				got = verdict.Fail
			}
			return opts.writeProbe(c.OutOrStdout(), r, r.Render, got,
				fmt.Sprintf("probe service, %d of %d failed, %s", r.Failed, r.Attempts, r.Duration))
		},
	}
	f := c.Flags()
	f.IntVarP(&o.N, "count", "n", 100, "connect this many times")
	f.DurationVar(&o.Timeout, "attempt-timeout", 2*time.Second, "fail an attempt after this long")
	timeoutFlag(f, &opts.timeout, 5*time.Minute, "stop after this long")
	f.StringVar(&proto, "proto", "tcp", "tcp (connect) or dns (a query over UDP, which any response code answers)")
	f.StringVar(&pod, "from", "", "connect from the Pod `NAMESPACE/NAME` of this node (default: from the node itself)")
	f.StringVar(&o.Netns, "netns", "", "connect from the network namespace in `FILE`, such as /proc/PID/ns/net")
	opts.formatFlags(c, "text", "json")
	completeWith(c, "proto", "tcp", "dns")
	c.MarkFlagsMutuallyExclusive("from", "netns")
	return c
}

// newPackets returns the command that an audit starts: its replica of the node ends with this process.
func newPackets() *cobra.Command {
	return &cobra.Command{
		Use: host.PacketsCommand, Hidden: true, DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] == "cage" {
				return exit(cage.Main(args[1:]))
			}
			return audit.Packets(c.Context(), strings.Join(args, " "), c.InOrStdin(), c.OutOrStdout())
		},
	}
}

// refusedCall returns a usage error for a target or option that the probe refuses, or nil.
func refusedCall(err error) error {
	if _, is := errors.AsType[datapath.CallError](err); is {
		return fmt.Errorf("%w; for example: nodegate probe service 10.96.0.10:53 --proto dns -n 1000", err)
	}
	return nil
}

func unknown(c *cobra.Command, err error) error {
	fmt.Fprintf(c.ErrOrStderr(), "nodegate: unknown: %s%s\n", report.Words(err), needsRoot(err))
	return exit(exitUnknown)
}

// writeProbe writes a result, and returns the exit code of its verdict.
func (o *outputs) writeProbe(stdout io.Writer, result any, text func(io.Writer) error, v verdict.Verdict, about string) error {
	if err := o.writeDocument(stdout, result, func(w io.Writer) error {
		if err := text(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
		return report.Total(w, o.paint(stdout), v, about)
	}); err != nil {
		return err
	}
	return exitCode(v)
}

// prove runs the probe of a policy's probe block.
func prove(ctx context.Context, h *host.Host, probe host.Probe) (host.Proof, error) {
	if probe.Name == policy.Service {
		o := datapath.ServiceOptions{Proto: datapath.TCP, Timeout: probe.Wait}
		if probe.Protocol == "dns" {
			o.Proto = datapath.DNSUDP
		}
		return datapath.ProveService(ctx, h, probe.Address, o)
	}
	r, err := datapath.Bridge(ctx, datapath.BridgeOptions{Timeout: probe.Wait})
	return host.Proof{Pass: r.Pass, Lost: string(r.Lost), Evidence: r.Summary, Remedy: r.Remedy}, err
}

// atMostEvery returns a prover that repeats its last result of a probe until it is older than d.
func atMostEvery(d time.Duration, prove prover) prover {
	type result struct {
		at    time.Time
		proof host.Proof
		err   error
	}
	var one sync.Mutex
	last := map[host.Probe]result{}
	return func(ctx context.Context, h *host.Host, probe host.Probe) (host.Proof, error) {
		one.Lock()
		defer one.Unlock()
		if r, ok := last[probe]; ok && time.Since(r.at) < d {
			return r.proof, r.err
		}
		r := result{at: time.Now()}
		r.proof, r.err = prove(ctx, h, probe)
		if ctx.Err() == nil {
			last[probe] = r
		}
		return r.proof, r.err
	}
}

type prover = func(ctx context.Context, h *host.Host, probe host.Probe) (host.Proof, error)
