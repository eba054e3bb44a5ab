package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/input"
	"nodegate/internal/kube"
	"nodegate/internal/plain"
	"nodegate/internal/ruleset"
	"nodegate/internal/verdict"
)

// auditOptions holds the flags of `nodegate audit`.
type auditOptions struct {
	outputs
	timeout time.Duration
	rules   []string
	audited audit.Request
	service string
	from    string
}

// auditTimeout leaves time to follow the differences from the API.
const auditTimeout = time.Minute

func newAudit() *cobra.Command {
	var o auditOptions
	c := &cobra.Command{
		Use:   "audit",
		Short: "Check kube-proxy's rules and compare them with the API",
		Long: `Audit reads the rules that kube-proxy wrote (both iptables backends and
nftables) and checks them against kube-proxy's own invariants. With
--kubeconfig, --in-cluster, or --services and --endpoints it also compares them
with the API: rules can be stale while every health endpoint of kube-proxy
reports success (kubernetes#87615).

Rules and API cannot be read at the same instant. Audit follows each difference
from the API server: it watches the API and re-reads the rules. It stops when
the rules match a version that the API had, or when the difference has
persisted for longer than a sync of kube-proxy takes. With --once, and with
recorded files, audit compares only once.

On the running node audit also finds kube-proxy's process, and queries its
healthz and metrics. It changes nothing. It prints remedies, and does not run
them.

Exit status: 0 no finding or only warnings, 1 findings that break traffic,
2 unreadable input, 3 unknown. With --service, findings about other Services
do not count.`,
		Example: `  nodegate audit --kubeconfig /var/lib/kube-proxy/kubeconfig
  iptables-save | nodegate audit --rules -
  kubectl get services -A -o json > services.json
  kubectl get endpointslices -A -o json > slices.json
  nodegate audit --services services.json --endpoints slices.json
  nodegate audit --service default/web    show its path and endpoints' shares
  nodegate audit --service default/web --from 10.244.1.7`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.StringArrayVar(&o.rules, "rules", nil, "read the rules from `FILE` (iptables-save text or nft -j JSON; - is standard input) "+
		"instead of from this node; may be repeated")
	f.StringVar(&o.audited.Truth.Endpoints, "endpoints", "", "also compare with the EndpointSlices in `FILE`")
	f.StringVar(&o.audited.Truth.Services, "services", "", "compare with the Services in `FILE` (the output of kubectl get -o json)")
	f.StringVar(&o.audited.Truth.Kubeconfig, "kubeconfig", "", "compare with the API server of the kubeconfig in `FILE`")
	f.BoolVar(&o.audited.Truth.InCluster, "in-cluster", false, "compare with the API server, using the Pod's service account")
	f.StringVar(&o.audited.Node, "node", "", "the node's `NAME` in the API, to know which endpoints are local")
	f.BoolVar(&o.audited.Once, "once", false, "compare once; a difference may then be a change that kube-proxy has not synced yet")
	f.DurationVar(&o.audited.Settle, "settle", 0, "report a difference after it has persisted for `DURATION` "+
		"(default 15s, or longer if kube-proxy's minSyncPeriod is)")
	f.StringVar(&o.service, "service", "", "show the path of one Service, `NAMESPACE/NAME[:PORT]`")
	f.StringVar(&o.from, "from", "", "with --service, send packets from `SENDER` (an address, pod, node, outside, or with --kubeconfig "+
		"a Pod's NAMESPACE/NAME) through a copy of this node's network")
	f.StringVar(&o.audited.Healthz, "healthz", "", "kube-proxy's health `URL` (on the node, default http://127.0.0.1:10256/healthz)")
	f.StringVar(&o.audited.Metrics, "metrics", "", "kube-proxy's metrics `URL` (on the node, default http://127.0.0.1:10249/metrics)")
	o.formatFlags(c, "text", "json", "junit", "prometheus")
	timeoutFlag(f, &o.timeout, auditTimeout, "stop after this long; anything still undecided is then unknown")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "list every Service, even in a large cluster")
	c.MarkFlagsMutuallyExclusive("endpoints", "kubeconfig", "in-cluster")
	c.MarkFlagsMutuallyExclusive("services", "kubeconfig", "in-cluster")
	return c
}

// auditGC limits the heap's growth: the rules of 50,000 endpoints take 50 MB, and the default would let the heap double.
const auditGC = 50

func (o *auditOptions) run(c *cobra.Command) error {
	debug.SetGCPercent(auditGC)
	h, err := host.Open("/")
	if err != nil {
		return err
	}
	defer h.Close()
	ctx, cancel := context.WithTimeout(c.Context(), o.timeout)
	defer cancel()
	if c.Flags().Changed("from") {
		return inputError(o.writeWays(ctx, h, c.OutOrStdout()))
	}
	render, err := o.renderer(c.OutOrStdout())
	if err != nil {
		return err
	}
	began := time.Now()
	got, err := o.audit(ctx, h, c.InOrStdin(), c.ErrOrStderr())
	if err := interrupted(c, ": no verdict"); err != nil {
		return err
	}
	if err != nil {
		return inputError(err)
	}
	r := report.NewAudit(h, &got.Report, got.Covered, began)
	r.Audit.Converged = got.Converged
	if err := o.write(c.OutOrStdout(), func(w io.Writer) error { return render(w, &got.Report, r) }); err != nil {
		return err
	}
	if one, err := report.OneService(&got.Report, o.service); o.service != "" && err == nil {
		if v := report.Verdict(one); v != verdict.Warn { // the verdict that was printed
			return exitCode(v)
		}
		return nil
	}
	return exitCode(r.Verdict)
}

// audit audits the recorded rules, or this node.
func (o *auditOptions) audit(ctx context.Context, h *host.Host, stdin io.Reader, stderr io.Writer) (audit.Result, error) {
	r := o.audited
	r.Truth.Plugins = kube.NewPlugins(host.Credential)
	r.Skipped = func(err error) { fmt.Fprintf(stderr, "nodegate: skipped: %v\n", err) }
	r.Warn = func(text string) { fmt.Fprintf(stderr, "nodegate: warning: %s\n", text) }
	r.Progress = report.Following(stderr)
	if len(o.rules) == 0 {
		return audit.Run(ctx, h, r)
	}
	sets, err := o.parseRules(stdin)
	if err != nil {
		return audit.Result{}, err
	}
	return audit.RunRecorded(ctx, sets, r)
}

// renderer returns the writer of the requested format.
func (o *auditOptions) renderer(stdout io.Writer) (func(io.Writer, *audit.Judgment, report.Report) error, error) {
	switch {
	case o.format == "text" && o.service != "":
		return func(w io.Writer, rep *audit.Judgment, _ report.Report) error {
			one, err := report.OneService(rep, o.service)
			if err != nil {
				return err
			}
			return report.ServiceTree(w, one)
		}, nil
	case o.service != "":
		return nil, fmt.Errorf("--service cannot be written in format %q; known formats: text", o.format)
	case o.format == "text":
		return func(w io.Writer, rep *audit.Judgment, r report.Report) error {
			if err := report.AuditSummary(w, rep, o.verbose); err != nil {
				return err
			}
			if n := r.Audit.Converged; n > 0 {
				fmt.Fprintf(w, "\n%s converged after a difference\n", report.Count(n, "Service port"))
			}
			fmt.Fprintln(w)
			return r.Total(w, o.paint(stdout))
		}, nil
	}
	write := report.Renderer(o.format, report.Plain, o.verbose)
	return func(w io.Writer, _ *audit.Judgment, r report.Report) error { return write(w, r) }, nil
}

// inputError prints an error of an input that could not be judged, and returns exit
// status 3. It returns any other error unchanged, as a usage error.
func inputError(err error) error {
	if errors.Is(err, input.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) {
		fmt.Fprintf(plain.NewWriter(os.Stderr, false), "nodegate: %v%s\n", err, needsRoot(err))
		return exit(exitUnknown)
	}
	return err
}

func (o *auditOptions) parseRules(stdin io.Reader) (sets []*ruleset.Set, err error) {
	for _, name := range o.rules {
		set, err := parseRules(name, stdin)
		if err != nil {
			return nil, fmt.Errorf("reading rules: %w", err)
		}
		sets = append(sets, set)
	}
	return sets, nil
}

// parseRules parses a file, or standard input for "-". Errors name the input.
func parseRules(name string, stdin io.Reader) (*ruleset.Set, error) {
	in, shown, err := openNamed(name, stdin)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	set, err := ruleset.Parse(name, in)
	if errors.Is(err, input.ErrUnreadable) && !strings.Contains(err.Error(), "run `") {
		err = fmt.Errorf("%w; run `iptables-save > rules.txt`, and ip6tables-save for IPv6, or `nft -j list ruleset > rules.json`", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	return set, nil
}
