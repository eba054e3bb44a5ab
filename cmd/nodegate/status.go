package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/units"
)

func newStatus() *cobra.Command {
	var format string
	file := watchFile
	c := &cobra.Command{
		Use:   "status",
		Short: "What watch knows: what drifted, what it corrected, who fights it, since when",
		Long: `Status reads what "nodegate watch" last wrote to ` + watchFile + `.
It asks the machine nothing; for that, use "nodegate check".

Exit status: as that of check. 3 also where watch does not run or is late.`,
		Example: `  nodegate status
  nodegate status --format json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if format != "text" && format != "json" {
				return fmt.Errorf("--format is text or json; %q is neither", format)
			}
			text, err := os.ReadFile(file)
			if errors.Is(err, fs.ErrNotExist) {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: %s is not there: watch has not run since this machine started; run: systemctl start %s\n", file, units.WatchUnit)
				return exit(exitUnknown)
			}
			if err != nil {
				return fmt.Errorf("reading what watch knows: %w", err)
			}
			s, err := readStatus(text)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if format == "json" {
				_, err = c.OutOrStdout().Write(text)
			} else {
				err = writeStatus(c.OutOrStdout(), s, time.Now(), painter(c.OutOrStdout()))
			}
			if err != nil {
				return err
			}
			if healthy(s.State, time.Now()) != nil {
				return exit(exitUnknown)
			}
			return code(s.verdict())
		},
	}
	c.Flags().StringVarP(&format, "format", "f", "text", "text or json")
	c.Flags().StringVar(&file, "file", file, "read `FILE`, of another machine for example")
	return c
}

// status is as much of a watchDocument as people are shown.
type status struct {
	watchDocument
	Report struct {
		Node    node   `json:"node"`
		Verdict string `json:"verdict"`
		Results []struct {
			Name, Verdict, Want, Got, Error, Because string
		} `json:"results"`
	} `json:"report"`
}

func readStatus(text []byte) (status, error) {
	var s status
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("this is not what watch writes: %w", err)
	}
	if s.Kind != "Watch" || s.APIVersion != "nodegate/v1" {
		return s, fmt.Errorf("this is %q of %q, not \"Watch\" of \"nodegate/v1\"", s.Kind, s.APIVersion)
	}
	return s, nil
}

func (s status) verdict() checks.Verdict {
	switch s.Report.Verdict {
	case "pass":
		return checks.Pass
	case "fail":
		return checks.Fail
	}
	return checks.Unknown
}

// writeStatus is the status for people: what is wrong first.
func writeStatus(w io.Writer, s status, now time.Time, paint paint) error {
	since := func(t time.Time) string { return now.Sub(t).Round(time.Second).String() }
	t := text{paint: paint}
	for _, r := range s.Report.Results {
		t.width = max(t.width, len(r.Name))
	}
	for _, f := range s.Fights {
		t.width = max(t.width, len(f.Name))
	}
	for _, c := range s.Last {
		t.width = max(t.width, len(about(c)))
	}
	if err := healthy(s.State, now); err != nil {
		t.line(yellow, "UNKNOWN", "watch", err.Error()+"; run: systemctl status "+units.WatchUnit)
	}
	if s.Off != "" {
		t.line(yellow, "OFF", "watch", "switched off by "+s.Off+": nothing is corrected")
	}
	if s.PolicyError != "" {
		t.line(yellow, "POLICY", "watch", s.PolicyError+"; the last good one is in use")
	}
	for _, f := range s.Fights {
		t.line(red, "FIGHT", f.Name, fmt.Sprintf("for %s, next correction at %s", since(f.Since), f.Next.UTC().Format(time.TimeOnly)))
		fmt.Fprintf(&t, "        %s\n", f.Writer)
	}
	for _, r := range s.Report.Results {
		word := map[string]string{"fail": "FAIL", "unknown": "UNKNOWN", "warn": "warn"}[r.Verdict]
		switch {
		case word == "" || r.Because != "":
		case r.Error != "":
			t.line(yellow, word, r.Name, r.Error)
		default:
			t.line(red, word, r.Name, "want "+r.Want+", got "+r.Got)
		}
	}
	for _, c := range s.Last {
		word := "fixed"
		if c.New {
			word = "set"
		}
		t.line(green, word, about(c), fmt.Sprintf("%s -> %s, %s ago", c.Was, c.Now, since(c.Time)))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Corrected)) {
		t.line(dim, "total", name, times(s.Corrected[name])+" corrected")
	}
	fmt.Fprintf(&t, "%s: %s; watching for %s, last round %s ago\n", s.Report.Node.Name, summaryOf(s), since(s.Since), since(s.LastRound))
	_, err := t.WriteTo(w)
	return err
}

func summaryOf(s status) string {
	return fmt.Sprintf("%s, %s, %s set", s.Report.Verdict, count(len(s.Report.Results), "requirement"), count(s.Links, "new link"))
}
