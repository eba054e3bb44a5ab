package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/input"
	"nodegate/internal/kube"
	"nodegate/internal/plain"
	"nodegate/internal/proxyrules"
	"nodegate/internal/ruleset"
)

// auditOptions is the flags of `nodegate audit`.
type auditOptions struct {
	options
	rules      []string
	truth      kube.Source
	node, zone string
	once       bool
	settle     time.Duration
	service    string
	proxy      kube.ProxyPages
}

// auditTimeout leaves time to follow what differs.
const auditTimeout = time.Minute

func newAudit() *cobra.Command {
	var o auditOptions
	c := &cobra.Command{
		Use:   "audit",
		Short: "Judge kube-proxy's rules, and compare them with the API",
		Long: `Audit reads the rules that kube-proxy wrote (both iptables backends and nftables),
checks them against kube-proxy's own invariants and, with --endpoints, --kubeconfig
or --in-cluster, against the EndpointSlices: rules can be stale while every
health endpoint of kube-proxy says fine (kubernetes#87615).

Rules and API cannot be read at the same instant. What differs from the API server is
followed, by a watch and by reading the rules again, until the rules agree with a version
that the API had, or have stayed the same for longer than kube-proxy needs. --once, and
files, are one look.

On the running node it also looks for kube-proxy's process, asks its healthz and metrics,
and reads its log. It changes nothing, and prints remedies without running them.

Exit status: 0 no finding or only warnings, 1 findings that break traffic, 2 unreadable input, 3 unknown.`,
		Example: `  nodegate audit --kubeconfig /var/lib/kube-proxy/kubeconfig
  iptables-save | nodegate audit --rules -
  kubectl get endpointslices -A -o json > slices.json
  nodegate audit --endpoints slices.json
  nodegate audit --service default/web          one Service's path, and each endpoint's chance
  nodegate audit --service default/web --format svg --output web.svg`,
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
	f.BoolVar(&o.once, "once", false, "look once; what differs from the API may be a change that kube-proxy has yet to write")
	f.DurationVar(&o.settle, "settle", 0, "a difference that stays the same for so `long` is a finding "+
		"(default 15s, or longer where kube-proxy's minSyncPeriod is)")
	f.StringVar(&o.service, "service", "", "show the path of one Service, `NAMESPACE/NAME[:PORT]`")
	f.StringVar(&o.proxy.Healthz, "healthz", "", "kube-proxy's health `URL` (default on the node http://127.0.0.1:10256/healthz)")
	f.StringVar(&o.proxy.Metrics, "metrics", "", "kube-proxy's metrics `URL` (default on the node http://127.0.0.1:10249/metrics)")
	f.StringArrayVar(&o.proxy.Logs, "log", nil, "read kube-proxy's log in `FILE` (default on the node: where it usually is)")
	o.formatFlags(c, "it", "text", "json", "junit", "tap", "prometheus", "npd", "svg")
	timeoutFlag(f, &o.timeout, auditTimeout, "give up after this long; what is not certain by then is unknown")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "list every Service, also of a large cluster")
	c.MarkFlagsMutuallyExclusive("endpoints", "kubeconfig", "in-cluster")
	return c
}

// auditGC: rules of 50,000 endpoints are 50 MB as they are kept; the collector would let them become twice as much.
const auditGC = 50

func (o *auditOptions) run(c *cobra.Command) error {
	render, err := o.renderer(c.OutOrStdout())
	if err != nil {
		return err
	}
	debug.SetGCPercent(auditGC)
	h, err := host.Open("/")
	if err != nil {
		return err
	}
	defer h.Close()
	ctx, cancel := context.WithTimeout(c.Context(), o.timeout)
	defer cancel()
	o.truth.Plugins = kube.NewPlugins(host.Credential)
	a := &auditRun{auditOptions: o, host: h, stderr: c.ErrOrStderr(), began: time.Now()}
	if len(o.rules) > 0 {
		err = a.files(ctx, c.InOrStdin())
	} else {
		err = a.live(ctx)
	}
	if err != nil {
		return inputError(err)
	}
	r := report.NewAudit(h, &a.rep, a.covered, a.began)
	if len(a.converged) > 0 {
		r.Audit.Converged = a.converged
	}
	if err := o.write(c.OutOrStdout(), func(w io.Writer) error { return render(w, &a.rep, r) }); err != nil {
		return err
	}
	return code(r.Verdict)
}

// renderer returns the writer of the requested format.
func (o *auditOptions) renderer(stdout io.Writer) (func(io.Writer, *proxyrules.Judgment, report.Report) error, error) {
	draw := map[string]func(io.Writer, *proxyrules.Judgment) error{"text": report.ServiceTree, "svg": report.ServiceSVG}[o.format]
	switch {
	case draw != nil && o.service != "":
		return func(w io.Writer, rep *proxyrules.Judgment, _ report.Report) error {
			one, err := report.OneService(rep, o.service)
			if err != nil {
				return err
			}
			return draw(w, one)
		}, nil
	case o.service != "":
		return nil, fmt.Errorf("--service is drawn as text or svg; %q is neither", o.format)
	case o.format == "svg":
		return nil, errors.New("--format svg draws one Service: name it with --service NAMESPACE/NAME")
	case o.format == "text":
		return func(w io.Writer, rep *proxyrules.Judgment, r report.Report) error {
			if err := report.AuditSummary(w, rep, o.verbose); err != nil {
				return err
			}
			if err := report.WriteConverged(w, r.Audit.Converged); err != nil {
				return err
			}
			fmt.Fprintln(w)
			return r.Total(w, o.paint(stdout))
		}, nil
	}
	write, err := report.Renderer(o.format, report.Plain, o.verbose)
	if err != nil {
		return nil, fmt.Errorf("--format is text, json, junit, tap, prometheus, npd or svg; %q is none of them", o.format)
	}
	return func(w io.Writer, _ *proxyrules.Judgment, r report.Report) error { return write(w, r) }, nil
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

// parseRules parses a file, or standard input, and names it in errors.
func parseRules(name string, stdin io.Reader) (*ruleset.Set, error) {
	in, shown, err := openNamed(name, stdin)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	set, err := ruleset.Parse(name, in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	return set, nil
}
