package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/verdict"
)

func newRehearse() *cobra.Command {
	var written outputs
	var timeout time.Duration
	var rules string
	c := &cobra.Command{
		Use:   "rehearse [flags] [-- COMMAND [ARG...]]",
		Short: "Show which packets a change of rules or sysctls would lose",
		Long: `Rehearse copies this node's network into scratch namespaces, sends packets
there, runs the command in the copy, and sends the packets again. It prints the
connections that the change would lose, with the rule, route or sysctl that
loses them. It changes nothing on the node.

The command sees the node's files, and writes to a layer in memory. It reaches
no socket, process or device of the node. systemctl and service run what a
oneshot unit runs; they only note other units. What kube-proxy and kubelet
write again within half a minute is told apart from lasting losses.

Exit status: 0 nothing is lost and all was tried, 1 connections are lost,
2 usage error, 3 nothing is lost as far as it was tried.`,
		Example: `  nodegate rehearse -- ufw --force enable
  nodegate rehearse -- sysctl --system
  nodegate rehearse --rules rules.nft
  nodegate rehearse -- sh -c 'iptables -t nat -F; systemctl restart docker'`,
		RunE: func(c *cobra.Command, args []string) error {
			args, err := rehearsed(args, rules)
			if err == nil && timeout <= 0 {
				err = fmt.Errorf("--timeout must be positive, for example 1m; got %s", timeout)
			}
			if err != nil {
				return err
			}
			if os.Geteuid() != 0 {
				return unknown(c, errors.New("a rehearsal reads the node's rules and creates namespaces: run it as root"))
			}
			h, err := host.Open("/")
			if err != nil {
				return err
			}
			defer h.Close()
			begun := time.Now()
			r, err := audit.Rehearse(c.Context(), h, args, timeout)
			if err := interrupted(c, ": no verdict"); err != nil {
				return err
			}
			if err != nil {
				return unknown(c, err)
			}
			var got verdict.Verdict
			if err := got.UnmarshalText([]byte(r.Verdict)); err != nil {
				return err
			}
			took := time.Since(begun).Round(100 * time.Millisecond)
			return written.writeProbe(c.OutOrStdout(), r, func(w io.Writer) error { return writeRehearsed(w, &r, took) }, got,
				fmt.Sprintf("rehearse, %d of %d connections are lost, %s", lostFlows(r.Lost)+lostFlows(r.Brief), r.Flows, took))
		},
	}
	c.Flags().StringVar(&rules, "rules", "", "rehearse loading the rules in `FILE` (iptables-save text, or nft's) instead of a command")
	timeoutFlag(c.Flags(), &timeout, 2*time.Minute, "stop after this long; two thirds of the time are the command's")
	written.formatFlags(c, "text", "json")
	return c
}

// rehearsed returns the command to rehearse: the one of the call, or one that loads a file of rules.
func rehearsed(args []string, rules string) ([]string, error) {
	switch {
	case rules == "" && len(args) == 0:
		return nil, errors.New("name the command to rehearse, for example: nodegate rehearse -- ufw --force enable")
	case rules == "":
		return args, nil
	case len(args) > 0:
		return nil, errors.New("give --rules or a command, not both")
	}
	text, err := os.ReadFile(rules)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(text, []byte("\n*")) || bytes.HasPrefix(text, []byte("*")) {
		program := "iptables-restore"
		if bytes.Contains(text, []byte("icmp6")) || bytes.Contains(text, []byte("::")) {
			program = "ip6tables-restore"
		}
		return []string{program, rules}, nil
	}
	return []string{"nft", "-f", rules}, nil
}

func lostFlows(list []audit.Loss) (n int) {
	for i := range list {
		n += len(list[i].Flows)
	}
	return n
}

// writeRehearsed writes what a command would do: losses first.
func writeRehearsed(w io.Writer, r *audit.Rehearsed, took time.Duration) error {
	head := fmt.Sprintf("No connection of %d is lost.", r.Flows)
	if lost := lostFlows(r.Lost) + lostFlows(r.Brief); lost > 0 {
		head = fmt.Sprintf("LOSES %d of %d connections.", lost, r.Flows)
	}
	fmt.Fprintf(w, "%s Nothing on this node was changed. (%s)\n", head, took)
	for _, list := range [][]audit.Loss{r.Lost, r.Brief} {
		for i := range list {
			fmt.Fprintf(w, "  %s\n", audit.Cause(&list[i]))
			fmt.Fprintf(w, "      %d %s\n", len(list[i].Flows), audit.DescribeFlows(list[i].Flows))
		}
	}
	row := func(what string, list []string, none string) {
		const most = 12
		more := len(list) - most
		list = slices.Clone(list[:min(len(list), most)])
		for i := range list { // a command chooses names; other characters are escaped already
			list[i] = strings.ReplaceAll(list[i], "\n", `\n`)
		}
		if more > 0 {
			list = append(list, fmt.Sprintf("and %d more", more))
		}
		if said := cmp.Or(strings.Join(list, "\n                     "), none); said != "" {
			fmt.Fprintf(w, "  %-18s %s\n", what, said)
		}
	}
	if n := lostFlows(r.Brief); n > 0 || lostFlows(r.Lost) > 0 {
		row("lasting", []string{fmt.Sprintf("%d; until kube-proxy and kubelet write their rules again (30 s): %d", lostFlows(r.Lost), n)}, "")
	}
	row("open connections", r.Cut, fmt.Sprintf("all %d stay", r.Connected))
	row("lost before too", r.Before, "")
	row("it changed", r.Changed, "nothing that decides about packets")
	row("would write", r.Would.Files, "")
	row("would set", r.Would.Sysctls, "")
	var units []string
	for _, u := range r.Would.Units {
		units = append(units, fmt.Sprintf("%s %s: %s", u.Verb, u.Name, u.How))
	}
	row("units", units, "")
	row("modules", r.Would.Modules, "")
	row("not tried", r.NotTried, "nothing")
	return nil
}
