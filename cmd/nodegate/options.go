package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/policy"
	"nodegate/policy/lint"
)

// defaultTimeout bounds a run of the checks; a healthy one takes milliseconds.
const defaultTimeout = 30 * time.Second

// policyInput has the flags that choose a policy and the machine that it is for. Each verb's options embed it, outputs or checkRun, as the
// verb needs.
type policyInput struct {
	policies []string
	root     string
	vars     []string
	varFiles []string
	facts    []string          // of the node, instead of this machine's
	noFacts  bool              // read the policy without the facts of a machine
	late     func(fact string) // called for a fact that was not read in time; may be nil

	ships         bool // the policy goes to nodes, which do not have the values of variables
	noEnv         bool // the values of variables are in the policy already
	guarded       bool // refuse a policy that users other than root may write
	allowWritable bool // overrides guarded
	stays         bool // users other than root may write the policy that is, or will be, installed
	copied        bool // the files of --policy are copied, not used in place
	lint          bool // refuse a policy that would be invalid on some node
	advise        bool // print the mistakes that lint finds, and continue
}

// checkRun has the flags of a verb that runs checks.
type checkRun struct {
	policyInput
	outputs
	stage    string
	timeout  time.Duration
	names    []string     // check only these
	skip     []string     // leave these out
	asIs     bool         // without --stage, the machine's state decides: run if kubelet runs
	both     bool         // without --stage, also run the checks of the other stage
	recorded checks.Stage // the stage of the snapshot that is replayed
	left     string       // the checks that were left out
	some     bool         // report unknown if nothing was checked
	acts     bool         // the exit status is that of the node, even if standard output does not take the report
}

func (o *policyInput) policyFlags(c *cobra.Command) {
	c.Flags().StringArrayVarP(&o.policies, "policy", "p", nil, "read the policy from `FILE|DIR`; may be repeated")
	c.Flags().StringVar(&o.root, "root", "/", "use the machine's file tree in `DIR`")
	_ = c.MarkFlagDirname("root") // fails only if the flag does not exist
	o.varFlags(c)
}

func (o *policyInput) varFlags(c *cobra.Command) {
	c.Flags().StringArrayVar(&o.vars, "var", nil, "set a variable of the policy: `NAME=VALUE`; "+
		"the environment variable NODEGATE_VAR_NAME does the same")
	c.Flags().StringArrayVar(&o.varFiles, "var-file", nil, "set variables from the NAME = VALUE lines of `FILE`")
}

func (o *policyInput) factFlag(c *cobra.Command) {
	c.Flags().StringArrayVar(&o.facts, "fact", nil, "evaluate for a node with this fact: `NAME=VALUE`, such as node.cpus=96; facts that "+
		"are not "+
		"given are unknown")
}

func (o *checkRun) reportFlags(c *cobra.Command) {
	o.stageFlag(c)
	o.formatFlags(c, "text", "json", "junit", "prometheus")
	o.quietFlag(c)
	timeoutFlag(c.Flags(), &o.timeout, defaultTimeout, "stop after this long; requirements not checked by then are unknown")
	c.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "also list the checks that pass, with evidence")
}

func (o *checkRun) stageFlag(c *cobra.Command) {
	usage := "image, boot, run or all (default boot, or image with --root)"
	if root := c.Flags().Lookup("root"); root != nil && root.Hidden {
		usage = "boot, run or all (default boot)"
	}
	if o.asIs {
		usage = "image, boot, run or all (default run if kubelet's unit is active, otherwise boot; image with --root)"
	}
	c.Flags().StringVar(&o.stage, "stage", "", usage)
	completeWith(c, "stage", "image", "boot", "run", "all")
}

func (o *checkRun) skipFlag(c *cobra.Command) {
	c.Flags().StringArrayVar(&o.skip, "skip", nil, "leave out the check `NAME`, which may contain shell wildcards; may be repeated")
	_ = c.RegisterFlagCompletionFunc("skip", completeChecks) // fails only if the flag does not exist
}

// machine opens the machine at --root.
func (o *policyInput) machine() (*host.Host, error) {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return nil, err
	}
	h, err := host.Open(root)
	if err == nil && h.Live() {
		h.Prove = prove
	}
	return h, err
}

// load reads the policy and prints all its mistakes.
func (o *policyInput) load(h *host.Host, stderr io.Writer) (*policy.Policy, []policy.File, error) {
	files, err := o.policyFiles(h)
	if err != nil {
		return nil, nil, err
	}
	if o.ships {
		if files, err = o.shipped(files, stderr); err != nil {
			return nil, nil, err
		}
	}
	var said bytes.Buffer
	p, evaluated := o.evaluate(h, files, &said)
	if o.lint {
		known, err := o.policyOptions(stderr)
		if err != nil {
			return nil, nil, err
		}
		diags := lint.Lint(files, known)
		if err := printDiagnostics(stderr, nil, unreadFiles(o.policies)); err != nil {
			return nil, nil, err
		}
		if o.advise {
			diags = slices.DeleteFunc(diags, func(d *hcl.Diagnostic) bool { return d.Severity == hcl.DiagWarning })
			for _, d := range diags {
				if evaluated == nil { // otherwise they are errors, each printed once
					d.Severity = hcl.DiagWarning
				}
			}
		}
		if err := printDiagnostics(stderr, files, diags); err != nil {
			return nil, nil, err
		}
	}
	if _, err := said.WriteTo(stderr); err != nil {
		return nil, nil, err
	}
	return p, files, evaluated
}

// shipped returns the files with the given values of variables as defaults.
func (o *policyInput) shipped(files []policy.File, stderr io.Writer) ([]policy.File, error) {
	known, err := o.policyOptions(stderr)
	if err != nil {
		return nil, err
	}
	shipped, diags := policy.Shipped(files, known)
	if diags.HasErrors() {
		return nil, printDiagnostics(stderr, files, diags)
	}
	o.vars, o.varFiles, o.ships, o.noEnv = nil, nil, false, true
	return shipped, nil
}

// policyAlone loads the policy for a verb that does not inspect the machine.
func (o *policyInput) policyAlone(c *cobra.Command) (*policy.Policy, []policy.File, error) {
	h, err := o.machine()
	if err != nil {
		return nil, nil, err
	}
	defer h.Close()
	return o.load(h, c.ErrOrStderr())
}

// evaluate evaluates policy files with the current facts of h.
func (o *policyInput) evaluate(h *host.Host, files []policy.File, stderr io.Writer) (*policy.Policy, error) {
	known, err := o.policyOptions(stderr)
	if err != nil {
		return nil, err
	}
	return o.evaluateSource(h, policy.Read(files, known), files, stderr)
}

// evaluateSource evaluates files that were read already.
func (o *policyInput) evaluateSource(h *host.Host, read policy.Source, files []policy.File, stderr io.Writer) (*policy.Policy, error) {
	ctx, cancel := context.WithTimeout(context.Background(), factTime)
	defer cancel()
	fact, err := policy.GivenFacts(o.facts)
	if err != nil {
		return nil, err
	}
	if !o.noFacts && o.facts == nil {
		fact = func(name string) (any, bool) { return o.factInTime(ctx, h, name) }
	}
	p, diags := read.For(fact)
	if o.lint { // lint has printed the warnings
		diags = slices.DeleteFunc(diags, func(d *hcl.Diagnostic) bool { return d.Severity == hcl.DiagWarning })
	}
	if err := printDiagnostics(stderr, files, diags); err != nil {
		return nil, err
	}
	return p, nil
}

// factInTime returns a fact, or false if its file system has not answered when ctx ends.
func (o *policyInput) factInTime(ctx context.Context, h *host.Host, name string) (any, bool) {
	type fact struct {
		value any
		known bool
	}
	answer := make(chan fact, 1)
	go func() {
		value, known := h.Fact(ctx, name)
		answer <- fact{value, known}
	}()
	select {
	case f := <-answer:
		return f.value, f.known
	case <-ctx.Done():
		select { // a fact that notices the end of ctx itself
		case f := <-answer:
			return f.value, f.known
		case <-time.After(factGrace):
			if o.late != nil {
				o.late(name)
			}
			return nil, false
		}
	}
}

const (
	factTime  = 5 * time.Second // bounds the facts of a policy
	factGrace = time.Second     // the time in which a program that was killed then returns
)

// printDiagnostics prints the mistakes in a policy, and returns exit status 2
// if one of them is an error.
func printDiagnostics(w io.Writer, files []policy.File, diags hcl.Diagnostics) error {
	// A reader that is gone does not make a policy wrong.
	_ = report.Fold(w, func(to io.Writer) error { policy.WriteDiagnostics(to, files, diags); return nil })
	if !diags.HasErrors() {
		return nil
	}
	fmt.Fprintf(w, "nodegate: %s in the policy; nothing was done\n", report.Count(len(diags.Errs()), "mistake"))
	return exit(exitUsage)
}

// environment returns the values of the NODEGATE_VAR_name variables.
func environment() map[string]string {
	vars := map[string]string{}
	for _, e := range os.Environ() {
		if rest, ok := strings.CutPrefix(e, "NODEGATE_VAR_"); ok {
			name, value, _ := strings.Cut(rest, "=")
			vars[name] = value
		}
	}
	return vars
}

// policyOptions returns the inputs of a policy except the facts. The values of variables
// come from files first, then from --var; a later value wins.
func (o *policyInput) policyOptions(stderr io.Writer) (policy.Options, error) {
	known := catalog.Known()
	known.Version = version
	known.Vars, known.VarsAt = map[string]string{}, map[string]hcl.Range{}
	if !o.noEnv {
		known.Env = environment()
	}
	for _, file := range o.varFiles {
		files, err := readPolicies([]string{file})
		if err == nil {
			err = printDiagnostics(stderr, files, known.ReadVariables(files))
		}
		if err != nil {
			return known, err
		}
	}
	for _, v := range o.vars {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return known, fmt.Errorf("--var must be NAME=VALUE; got %q", v)
		}
		known.Vars[name] = value
		delete(known.VarsAt, name)
	}
	return known, nil
}

// runner runs the checks: checks.Inspect or checks.Apply.
type runner func(context.Context, *host.Host, checks.Stage, []checks.Check) checks.Outcome

// examine reads the policy and runs its checks on h.
func (o *checkRun) examine(c *cobra.Command, h *host.Host, run runner) (*policy.Policy, checks.Outcome, error) {
	if _, err := o.givenStage(); err != nil {
		return nil, checks.Outcome{}, err
	}
	p, _, err := o.load(h, c.ErrOrStderr())
	if err != nil {
		return nil, checks.Outcome{}, err
	}
	o.names, o.skip = currentNames(c.ErrOrStderr(), o.names), currentNames(c.ErrOrStderr(), o.skip)
	o.skip = slices.DeleteFunc(o.skip, func(name string) bool { return catalog.Dropped()[name] != "" })
	ctx, cancel := context.WithTimeout(c.Context(), o.timeout)
	defer cancel()
	s, err := o.selectChecks(ctx, h, p)
	if err != nil {
		return nil, checks.Outcome{}, err
	}
	o.left = s.left
	found := run(ctx, h, s.stage, s.list)
	switch {
	case len(found.Results) > 0:
	case len(o.skip) > 0:
		fmt.Fprintln(c.ErrOrStderr(), "nodegate: nothing was checked: --skip leaves out every requirement")
	default:
		fmt.Fprintf(c.ErrOrStderr(), "nodegate: nothing was checked: the policy has no requirement at stage %s; on a running machine it has %d\n",
			found.Stage, len(catalog.For(p, checks.Run)))
	}
	refused := slices.DeleteFunc(slices.Clone(found.Results), func(r checks.Result) bool { return needsRoot(r.Err) == "" })
	if len(refused) > 0 && h.Moves {
		o.left = strings.TrimPrefix(o.left+"; run it as root for "+report.Count(len(refused), "more check"), "; ")
	}
	if !o.acts { // apply still reports its changes
		err = interrupted(c, ": no verdict")
	}
	return p, found, err
}
