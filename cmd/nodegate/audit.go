package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"nodegate/checks/kubeproxy"
	"nodegate/internal/host"
	"nodegate/internal/input"
	"nodegate/internal/kube"
	"nodegate/internal/report"
	"nodegate/internal/ruleset"
)

// auditOptions is the flags of `nodegate audit`.
type auditOptions struct {
	options
	rules      []string
	endpoints  string
	services   string
	kubeconfig string
	inCluster  bool
	node, zone string
	service    string
	healthz    string
	metrics    string
	logs       []string
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
log. It changes nothing and runs no remedy: it prints them.

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
	f.StringArrayVar(&o.rules, "rules", nil, "judge the rules in `FILE` (iptables-save text or nft -j JSON; - is standard input) instead of this node's; may be given more than once")
	f.StringVar(&o.endpoints, "endpoints", "", "compare with the EndpointSlices in `FILE`, as kubectl prints them with -o json")
	f.StringVar(&o.services, "services", "", "compare with the Services in `FILE` too")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "compare with the API server that `FILE` names")
	f.BoolVar(&o.inCluster, "in-cluster", false, "compare with the API server, as the Pod's service account")
	f.StringVar(&o.node, "node", "", "the node's `NAME` in the API, to tell which endpoints are local")
	f.StringVar(&o.zone, "zone", "", "the node's `ZONE`, to follow topology hints")
	f.StringVar(&o.service, "service", "", "show the path of one Service, `NAMESPACE/NAME[:PORT]`")
	f.StringVar(&o.healthz, "healthz", "", "kube-proxy's health `URL` (default on the node http://127.0.0.1:10256/healthz)")
	f.StringVar(&o.metrics, "metrics", "", "kube-proxy's metrics `URL` (default on the node http://127.0.0.1:10249/metrics)")
	f.StringArrayVar(&o.logs, "log", nil, "read kube-proxy's log in `FILE` (default on the node: where it usually is)")
	f.StringVarP(&o.format, "format", "f", "text", "text, json, junit, tap, prometheus, npd or dot")
	f.StringVarP(&o.output, "output", "o", "", "write to `FILE` instead of standard output")
	f.DurationVar(&o.timeout, "timeout", defaultTimeout, "give up after this long")
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
	judged, err := o.truth(ctx)
	if err != nil {
		return inputError(err)
	}
	live := len(o.rules) == 0
	if live {
		if v, err := h.ReadSysctl("net/netfilter/nf_conntrack_tcp_be_liberal"); err == nil {
			liberal := v != "0"
			judged.BeLiberal = &liberal
		}
	}
	rep := kubeproxy.Judge(rules, judged)
	asked := o.askProxy(ctx, live, c.ErrOrStderr())
	rep.Findings = append(rep.Findings, asked.findings...)
	if f, ok := kubeproxy.DeadWatch(&rep, asked.findings); ok && asked.health {
		rep.Findings = append(rep.Findings, f)
	}
	r := report.NewAudit(h, &rep, report.Covered{
		Endpoints: judged.Endpoints != nil, Services: judged.Services != nil, Health: asked.health, Log: asked.log,
	}, began)
	if err := o.write(c.OutOrStdout(), func(w io.Writer) error { return render(w, &rep, r) }); err != nil {
		return err
	}
	return code(r.Verdict)
}

// renderer is the writer of the asked format.
func (o *auditOptions) renderer(stdout io.Writer) (func(io.Writer, *kubeproxy.Report, report.Report) error, error) {
	switch {
	case o.service != "":
		return func(w io.Writer, rep *kubeproxy.Report, _ report.Report) error {
			return kubeproxy.Tree(w, rep, o.service)
		}, nil
	case o.format == "dot":
		return func(w io.Writer, rep *kubeproxy.Report, _ report.Report) error { return kubeproxy.DOT(w, rep) }, nil
	case o.format == "text":
		return func(w io.Writer, rep *kubeproxy.Report, r report.Report) error {
			if err := kubeproxy.Summary(w, rep, o.verbose); err != nil {
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
	return func(w io.Writer, _ *kubeproxy.Report, r report.Report) error { return write(w, r) }, nil
}

// inputError gives an input that could not be judged its exit code; what is
// simply wrong leaves as a usage error.
func inputError(err error) error {
	if errors.Is(err, input.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) {
		fmt.Fprintf(os.Stderr, "nodegate: %v\n", err)
		return exit(exitUnknown)
	}
	return err
}

// readRules returns the rules of the files that --rules names, else the node's own.
func (o *auditOptions) readRules(ctx context.Context, h *host.Host, stdin io.Reader) ([]*ruleset.Set, error) {
	var sets []*ruleset.Set
	for _, name := range o.rules {
		set, err := parseFile(name, stdin, func(r io.Reader) (*ruleset.Set, error) { return ruleset.Parse(name, r) })
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

// truth is what the API says. Every cluster has a Service and an EndpointSlice
// of its own API server: a list without any is the wrong list, and would make
// every rule look stale.
func (o *auditOptions) truth(ctx context.Context) (kubeproxy.Options, error) {
	judged, err := o.readTruth(ctx)
	switch {
	case err != nil:
	case judged.Endpoints != nil && judged.Endpoints.Slices == 0:
		err = fmt.Errorf("reading EndpointSlices: %sthere is none in it; it should be what `kubectl get endpointslices -A -o json` prints", prefix(o.endpoints))
	case judged.Services != nil && judged.Services.Count == 0:
		err = fmt.Errorf("reading Services: %sthere is none in it; it should be what `kubectl get services -A -o json` prints", prefix(o.services))
	}
	return judged, err
}

func prefix(file string) string {
	if file == "" {
		return ""
	}
	return file + ": "
}

// readTruth reads files, or asks the API server.
func (o *auditOptions) readTruth(ctx context.Context) (kubeproxy.Options, error) {
	judged := kubeproxy.Options{NodeName: o.node, Zone: o.zone}
	var err error
	if o.endpoints != "" {
		if judged.Endpoints, err = parseFile(o.endpoints, nil, kubeproxy.LoadEndpointSlices); err != nil {
			return judged, fmt.Errorf("reading EndpointSlices: %w", err)
		}
	}
	if o.services != "" {
		if judged.Services, err = parseFile(o.services, nil, kubeproxy.LoadServices); err != nil {
			return judged, fmt.Errorf("reading Services: %w", err)
		}
	}
	var client *kube.Client
	switch {
	case o.kubeconfig != "":
		client, err = kube.FromKubeconfig(o.kubeconfig)
	case o.inCluster:
		client, err = kube.InCluster()
	default:
		return judged, nil
	}
	if err != nil {
		return judged, err
	}
	err = client.EndpointSlices(ctx, func(r io.Reader) (err error) {
		judged.Endpoints, err = kubeproxy.LoadEndpointSlices(r)
		return err
	})
	if err == nil {
		err = client.Services(ctx, func(r io.Reader) (err error) {
			judged.Services, err = kubeproxy.LoadServices(r)
			return err
		})
	}
	if err != nil {
		// The server did not answer as it should: that says nothing of the rules.
		err = errors.Join(input.ErrUnknown, err)
	}
	return judged, err
}

// parseFile opens a file, or standard input for "-", and names it in errors.
func parseFile[T any](name string, stdin io.Reader, parse func(io.Reader) (T, error)) (T, error) {
	if name == "-" && stdin != nil {
		v, err := parse(stdin)
		if err != nil {
			return v, fmt.Errorf("standard input: %w", err)
		}
		return v, nil
	}
	var zero T
	f, err := os.Open(name)
	if err != nil {
		return zero, err
	}
	defer f.Close()
	v, err := parse(f)
	if err != nil {
		return zero, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}
