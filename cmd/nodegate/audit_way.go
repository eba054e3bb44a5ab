package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/kube"
	"nodegate/internal/ruleset"
	"nodegate/internal/verdict"
)

// writeWays writes the ways of packets from --from to --service, in recorded rules or on this node.
func (o *auditOptions) writeWays(ctx context.Context, h *host.Host, stdin io.Reader, stdout io.Writer) error {
	if o.service == "" {
		return errors.New("--from needs --service NAMESPACE/NAME[:PORT]")
	}
	if o.format != "text" && o.format != "json" {
		return fmt.Errorf("--from cannot be written in format %q; known formats: text, json", o.format)
	}
	sets, opts, err := o.readForWays(ctx, h, stdin)
	if err != nil {
		return err
	}
	senders, err := o.findSenders(ctx, &opts)
	if err != nil {
		return err
	}
	rep := audit.Judge(sets, opts)
	one, err := report.OneService(&rep, o.service)
	if err != nil {
		return err
	}
	var list []audit.Trace
	for _, from := range senders {
		ways, err := audit.Traces(&rep, sets, &opts, o.service, from)
		if err != nil {
			return err
		}
		list = append(list, ways...)
	}
	if len(list) == 0 {
		return fmt.Errorf("no address of %s can be used from %s: it has no node port, external or load balancer address, or not this "+
			"address family (%d ports)", o.service, o.from, len(one.Services))
	}
	worst := verdict.Pass
	for _, t := range list {
		worst = verdict.Worse(worst, t.Verdict)
	}
	if err := o.writeDocument(stdout, report.NewWays(list), func(w io.Writer) error { return report.WriteWays(w, list) }); err != nil {
		return err
	}
	return exitCode(worst)
}

// readForWays reads the rules of --rules, each a file of rules or a snapshot, or this node's.
func (o *auditOptions) readForWays(ctx context.Context, h *host.Host, stdin io.Reader) (
	sets []*ruleset.Set, opts audit.Options, err error) {
	for _, name := range o.rules {
		if recorded := replayed(name); recorded != nil {
			of, err := recorded.Rulesets(ctx)
			if err != nil {
				return nil, opts, fmt.Errorf("reading rules of snapshot %s: %w", name, err)
			}
			sets = append(sets, of...)
			audit.AddNetwork(ctx, recorded, &opts)
			continue
		}
		set, err := parseRules(name, stdin)
		if err != nil {
			return nil, opts, fmt.Errorf("reading rules: %w", err)
		}
		sets = append(sets, set)
	}
	if len(o.rules) == 0 {
		sets, err = h.Rulesets(ctx)
		audit.AddNetwork(ctx, h, &opts)
	}
	return sets, opts, err
}

// replayed returns the node of a snapshot, or nil if the file is not a snapshot.
func replayed(name string) *host.Host {
	if name == "-" {
		return nil
	}
	h, _, err := replay(name)
	if err != nil {
		return nil // parseRules reports the file
	}
	return h
}

// findSenders returns the values of --from: for the name of a Pod, its addresses in the API.
func (o *auditOptions) findSenders(ctx context.Context, opts *audit.Options) (senders []string, err error) {
	namespace, name, named := strings.Cut(o.from, "/")
	if !named || !isObjectName(namespace) || !isObjectName(name) {
		return []string{o.from}, nil
	}
	o.audited.Truth.Plugins = kube.NewPlugins(host.Credential)
	api, err := o.audited.Truth.Server()
	if err != nil {
		return nil, err
	}
	if api == nil {
		return nil, fmt.Errorf("--from %s names a Pod, whose address the API has: give --kubeconfig or --in-cluster, or its address, which "+
			"`kubectl -n %s get pod %s -o wide` prints", o.from, namespace, name)
	}
	defer api.Close()
	pod, err := api.Pod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	if opts.Own != nil && pod.Host.IsValid() && opts.Own(pod.Host) == audit.No {
		return nil, fmt.Errorf("--from %s: this Pod runs on %s, not on this node, whose rules its packets do not pass first: audit there",
			o.from, pod.Host)
	}
	for _, ip := range pod.Addresses {
		senders = append(senders, ip.String())
	}
	return senders, nil
}

// isObjectName reports whether a text can be the name of a namespace or Pod.
func isObjectName(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-."
	return text != "" && len(text) < 254 && strings.Trim(text, letters) == "" && strings.Trim(text, ".-") == text
}
