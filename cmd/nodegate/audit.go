package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"nodegate/internal/host"
	"nodegate/internal/host/file"
	"nodegate/internal/input"
	"nodegate/internal/kube"
	"nodegate/internal/plain"
	"nodegate/internal/proxyrules"
	"nodegate/internal/report"
	"nodegate/internal/ruleset"
)

// auditOptions is the flags of `nodegate audit`.
type auditOptions struct {
	options
	rules      []string
	truth      kube.Source
	node, zone string
	service    string
	proxy      kube.ProxyPages
}

func newAudit() *cobra.Command {
	var o auditOptions
	c := &cobra.Command{
		Use:   "audit",
		Short: "Judge kube-proxy's rules, and compare them with the API",
		Long: `Audit reads the rules that kube-proxy wrote (both iptables backends and nftables),
checks them against kube-proxy's own invariants and, with --endpoints, --kubeconfig
or --in-cluster, against the EndpointSlices: rules can be stale while every
health endpoint of kube-proxy says fine (kubernetes#87615).

On the running node it also asks kube-proxy's healthz and metrics, and reads its
log. It changes nothing, and prints remedies without running them.

Exit status: 0 no finding, 1 findings, 2 unreadable input, 3 unknown.`,
		Example: `  nodegate audit --kubeconfig /var/lib/kube-proxy/kubeconfig
  iptables-save | nodegate audit --rules -
  kubectl get endpointslices -A -o json > slices.json
  nodegate audit --endpoints slices.json
  nodegate audit --service default/web          one Service's path, and each endpoint's chance
  nodegate audit --format dot | dot -Tsvg > services.svg`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.StringArrayVar(&o.rules, "rules", nil, "judge the rules in `FILE` (iptables-save text or nft -j JSON; - is standard input) "+
		"instead of this node's; may be given more than once")
	f.StringVar(&o.truth.Endpoints, "endpoints", "", "compare with the EndpointSlices in `FILE`, as kubectl prints them with -o json")
	f.StringVar(&o.truth.Services, "services", "", "compare with the Services in `FILE` too")
	f.StringVar(&o.truth.Kubeconfig, "kubeconfig", "", "compare with the API server that `FILE` names")
	f.BoolVar(&o.truth.InCluster, "in-cluster", false, "compare with the API server, as the Pod's service account")
	f.StringVar(&o.node, "node", "", "the node's `NAME` in the API, to know which endpoints are local")
	f.StringVar(&o.zone, "zone", "", "the node's `ZONE`, to follow topology hints")
	f.StringVar(&o.service, "service", "", "show the path of one Service, `NAMESPACE/NAME[:PORT]`")
	f.StringVar(&o.proxy.Healthz, "healthz", "", "kube-proxy's health `URL` (default on the node http://127.0.0.1:10256/healthz)")
	f.StringVar(&o.proxy.Metrics, "metrics", "", "kube-proxy's metrics `URL` (default on the node http://127.0.0.1:10249/metrics)")
	f.StringArrayVar(&o.proxy.Logs, "log", nil, "read kube-proxy's log in `FILE` (default on the node: where it usually is)")
	f.StringVarP(&o.format, "format", "f", "text", "text, json, junit, tap, prometheus, npd or dot")
	f.StringVarP(&o.output, "output", "o", "", "write to `FILE` instead of standard output")
	timeoutFlag(f, &o.timeout, defaultTimeout, "give up after this long")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "list every Service, also of a large cluster")
	c.MarkFlagsMutuallyExclusive("endpoints", "kubeconfig", "in-cluster")
	return c
}

func (o *auditOptions) run(c *cobra.Command) error {
	render, err := o.renderer(c.OutOrStdout())
	if err != nil {
		return err
	}
	h, err := host.Open("/")
	if err != nil {
		return err
	}
	defer h.Close()
	ctx, cancel := context.WithTimeout(c.Context(), o.timeout)
	defer cancel()
	began := time.Now()
	rules, err := o.readRules(ctx, h, c.InOrStdin())
	if err != nil {
		return inputError(err)
	}
	judged := proxyrules.Options{NodeName: o.node, Zone: o.zone}
	if err := o.truth.Read(ctx, &judged); err != nil {
		return inputError(err)
	}
	o.proxy.Live = len(o.rules) == 0
	if o.proxy.Live {
		if v, err := h.ReadSysctl("net/netfilter/nf_conntrack_tcp_be_liberal"); err == nil {
			liberal := v != "0"
			judged.BeLiberal = &liberal
		}
	}
	rep := proxyrules.Judge(rules, judged)
	asked := kube.AskProxy(ctx, o.proxy, func(err error) { fmt.Fprintf(c.ErrOrStderr(), "nodegate: left out: %v\n", err) })
	rep.Findings = append(rep.Findings, asked.Findings...)
	if f, ok := kube.DeadWatch(&rep, asked.Findings); ok && asked.Health {
		rep.Findings = append(rep.Findings, f)
	}
	r := report.NewAudit(h, &rep, report.Covered{
		Endpoints: judged.Endpoints != nil, Services: judged.Services != nil, Health: asked.Health, Log: asked.Log,
	}, began)
	if err := o.write(c.OutOrStdout(), func(w io.Writer) error { return render(w, &rep, r) }); err != nil {
		return err
	}
	return code(r.Verdict)
}

// renderer returns the writer of the requested format.
func (o *auditOptions) renderer(stdout io.Writer) (func(io.Writer, *proxyrules.Report, report.Report) error, error) {
	switch {
	case o.service != "":
		return func(w io.Writer, rep *proxyrules.Report, _ report.Report) error {
			return report.ServiceTree(w, rep, o.service)
		}, nil
	case o.format == "dot":
		return func(w io.Writer, rep *proxyrules.Report, _ report.Report) error { return report.AuditDOT(w, rep) }, nil
	case o.format == "text":
		return func(w io.Writer, rep *proxyrules.Report, r report.Report) error {
			if err := report.AuditSummary(w, rep, o.verbose); err != nil {
				return err
			}
			fmt.Fprintln(w)
			return r.Total(w, o.paint(stdout))
		}, nil
	}
	write, err := report.Renderer(o.format, report.Plain, o.verbose)
	if err != nil {
		return nil, fmt.Errorf("--format is text, json, junit, tap, prometheus, npd or dot; %q is none of them", o.format)
	}
	return func(w io.Writer, _ *proxyrules.Report, r report.Report) error { return write(w, r) }, nil
}

// inputError gives an input that could not be judged its exit code; what is
// simply wrong leaves as a usage error.
func inputError(err error) error {
	if errors.Is(err, input.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) {
		fmt.Fprintf(plain.NewWriter(os.Stderr, false), "nodegate: %v\n", err)
		return exit(exitUnknown)
	}
	return err
}

// readRules returns the rules of the files that --rules names, else the node's own.
func (o *auditOptions) readRules(ctx context.Context, h *host.Host, stdin io.Reader) ([]*ruleset.Set, error) {
	var sets []*ruleset.Set
	for _, name := range o.rules {
		set, err := parseRules(name, stdin)
		if err != nil {
			return nil, fmt.Errorf("reading rules: %w", err)
		}
		sets = append(sets, set)
	}
	if len(o.rules) > 0 {
		return sets, nil
	}
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return nil, errors.Join(input.ErrUnknown, err)
	}
	return sets, nil
}

// parseRules parses a file, or standard input for "-", and names it in errors.
func parseRules(name string, stdin io.Reader) (*ruleset.Set, error) {
	in, shown := stdin, "standard input"
	if name != "-" {
		f, err := file.OpenInput(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in, shown = f, name
	}
	set, err := ruleset.Parse(name, in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	return set, nil
}
