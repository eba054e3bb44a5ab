package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"nodegate/checks"
)

func newPlan() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "plan",
		Short: "Show what apply would change, old and new, and change nothing",
		Example: `  nodegate plan
  nodegate plan --policy my.hcl`,
		Long: `Plan shows what apply would change. Exit status 0: nothing; 1: something; 3:
something could not be told.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := o.machine()
			if err != nil {
				return err
			}
			defer h.Close()
			_, r, err := o.examine(c, h, checks.Inspect)
			if err != nil {
				return err
			}
			return writePlan(c.OutOrStdout(), r)
		},
	}
	o.policyFlags(c)
	c.Flags().StringVar(&o.stage, "stage", "", "image, boot, run or all (default boot, or image with --root)")
	c.Flags().DurationVar(&o.timeout, "timeout", defaultTimeout, "give up after this long")
	return c
}

func writePlan(w io.Writer, r checks.Report) error {
	paint := painter(w)
	var change, byHand, unknown []checks.Result
	width := 0
	for _, res := range r.Results {
		switch {
		case res.Verdict == checks.Unknown:
			unknown = append(unknown, res)
		case res.Verdict == checks.Pass || res.Verdict == checks.Skip:
			continue
		case len(res.State.Changes) > 0:
			change = append(change, res)
		default:
			byHand = append(byHand, res)
		}
		width = max(width, len(res.Name))
	}
	for _, res := range change {
		fmt.Fprintf(w, "  %s %-*s  %s -> %s\n", paint(yellow, "~"), width, res.Name, paint(red, res.State.Got), paint(green, res.State.Want))
	}
	for _, res := range byHand {
		fmt.Fprintf(w, "  %s %-*s  %s, wants %s; not apply's to change: %s\n", paint(red, "!"), width, res.Name, res.State.Got, res.State.Want, res.State.Remedy)
	}
	for _, res := range unknown {
		fmt.Fprintf(w, "  %s %-*s  could not tell: %s\n", paint(yellow, "?"), width, res.Name, oneLine(res.Err.Error()))
	}
	if len(change) == 0 {
		fmt.Fprintf(w, "no change: %s checked\n", count(len(r.Results), "requirement"))
	} else {
		fmt.Fprintf(w, "%s; run `nodegate apply` to make them\n", count(len(change), "change"))
	}
	switch {
	case len(unknown) > 0:
		return exit(exitUnknown)
	case len(change)+len(byHand) > 0:
		return exit(exitDiffers)
	}
	return nil
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }
