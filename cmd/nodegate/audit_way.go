package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/kube"
	"nodegate/internal/verdict"
)

// writeWays sends packets from --from to --service through a copy of this node, and writes where they arrive.
func (o *auditOptions) writeWays(ctx context.Context, h *host.Host, stdout io.Writer) error {
	switch {
	case o.service == "":
		return errors.New("--from needs --service NAMESPACE/NAME[:PORT]")
	case o.rules != nil:
		return errors.New("--from sends packets through a copy of this node's network: run it on the node, without --rules")
	case o.format != "text" && o.format != "json":
		return fmt.Errorf("--from cannot be written in format %q; known formats: text, json", o.format)
	}
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return err
	}
	rep := audit.Judge(sets, audit.Options{})
	one, err := report.OneService(&rep, o.service)
	if err != nil {
		return err
	}
	senders, err := o.findSenders(ctx, h)
	if err != nil {
		return err
	}
	var ways []report.Way
	worst := verdict.Pass
	for _, from := range senders {
		a, err := audit.AskFrom(ctx, h, &rep, o.service, from)
		if err != nil {
			return err
		}
		ways = append(ways, report.NewWays(&a)...)
	}
	if len(ways) == 0 {
		return fmt.Errorf("no address of %s can be used from %s: it has no node port, external or load balancer address, no endpoints, or "+
			"not this address family (%d ports)", o.service, o.from, len(one.Services))
	}
	for _, w := range ways {
		worst = verdict.Worse(worst, w.Verdict)
	}
	if err := o.writeDocument(stdout, report.WaysDocument(ways), func(w io.Writer) error { return report.WriteWays(w, ways) }); err != nil {
		return err
	}
	return exitCode(worst)
}

// findSenders returns the values of --from: for the name of a Pod, its addresses in the API.
func (o *auditOptions) findSenders(ctx context.Context, h *host.Host) (senders []string, err error) {
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
	if own, err := h.Links.Addresses(ctx); err == nil && pod.Host.IsValid() && !slices.Contains(own, pod.Host) {
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
