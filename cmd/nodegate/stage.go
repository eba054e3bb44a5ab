package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/plain"
	"nodegate/policy"
)

// selection is the checks that one call runs.
type selection struct {
	stage checks.Stage
	list  []checks.Check
	left  string // the checks that the call leaves out, and how to run them
}

// givenStage returns the stage of --stage, or "".
func (o *checkRun) givenStage() (checks.Stage, error) {
	switch s := checks.Stage(o.stage); s {
	case "", checks.Image, checks.Boot, checks.Run, checks.All:
		return s, nil
	}
	return "", fmt.Errorf("unknown stage %q; known stages: image, boot, run, all", o.stage)
}

// fittingStages returns the stage that fits the machine, and the stage whose other checks a call without --stage leaves out, or "".
func (o *checkRun) fittingStages(ctx context.Context, h *host.Host, p *policy.Policy) (stage, other checks.Stage) {
	switch {
	case !h.Live():
		return checks.Image, ""
	case !o.asIs:
		return checks.Boot, ""
	case o.recorded == checks.Run || o.recorded == "" && h.SystemdRuns() && runs(ctx, h, p.Gate.Unit):
		return checks.Run, checks.Boot
	case o.recorded == "" || o.recorded == checks.Boot:
		return checks.Boot, checks.Run
	}
	return o.recorded, ""
}

// runs reports whether a unit is active. A systemd that does not answer counts as not active: at stage boot nothing passes unseen, and
// the report names the stage that was left out.
func runs(ctx context.Context, h *host.Host, unit string) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	active, _, err := h.Units.State(ctx, unit)
	return err == nil && (active == "active" || active == "reloading")
}

// selectChecks returns the checks of a call: the named ones, or all of its stage, without the ones of --skip.
func (o *checkRun) selectChecks(ctx context.Context, h *host.Host, p *policy.Policy) (selection, error) {
	stage, err := o.givenStage()
	if err != nil {
		return selection{}, err
	}
	other := checks.Stage("")
	if stage == "" {
		stage, other = o.fittingStages(ctx, h, p)
	}
	s := selection{stage: stage, list: catalog.For(p, stage)}
	switch beside := without(catalog.For(p, other), s.list); {
	case len(o.names) > 0:
		s, err = named(p, o.names, stage, other)
	case stage == checks.Image && h.Live():
		s.left = "these are requirements of an image: run `nodegate check --stage boot` for a node"
	case other == "" || len(beside) == 0:
	case o.both:
		s.list = slices.Concat(s.list, beside)
	default:
		s.left = fmt.Sprintf("%s of stage %s left out: run `nodegate check --stage %[2]s`",
			report.Count(len(beside), "check"), other)
	}
	if err != nil || len(o.skip) == 0 {
		return s, err
	}
	skipped, absent, err := matching(s.list, o.skip)
	if err == nil && absent != "" {
		err = notFound(p, "--skip "+plain.Quote(absent), absent, stage, s.list)
	}
	s.list = without(s.list, skipped)
	left := report.Count(len(skipped), "check") + " left out by --skip"
	s.left = strings.Join(slices.DeleteFunc([]string{left, s.left}, func(part string) bool { return part == "" }), "; ")
	return s, err
}

// currentNames replaces the former names of checks, and warns of them.
func currentNames(stderr io.Writer, names []string) []string {
	renamed := catalog.Renamed()
	var current []string
	for _, name := range names {
		now, is := renamed[name]
		if is {
			fmt.Fprintf(stderr, "warning: %s is now %s; use the new name\n", name, now)
		}
		current = append(current, cmp.Or(now, name))
	}
	return current
}

// named returns the checks with these names at the stage, or at the other one if the stage lacks some of them.
func named(p *policy.Policy, names []string, stage, other checks.Stage) (selection, error) {
	all := catalog.For(p, stage)
	list, absent, err := matching(all, names)
	if err != nil || absent == "" {
		return selection{stage: stage, list: list}, err
	}
	if other != "" {
		if list, still, _ := matching(catalog.For(p, other), names); still == "" {
			return selection{stage: other, list: list}, nil
		}
	}
	return selection{}, notFound(p, plain.Quote(absent), absent, stage, all)
}

// notFound returns the error for a name that no check of the stage has.
func notFound(p *policy.Policy, shown, name string, stage checks.Stage, all []checks.Check) error {
	for _, s := range []checks.Stage{checks.Boot, checks.Run, checks.Image} {
		if found, _, _ := matching(catalog.For(p, s), []string{name}); len(found) > 0 {
			return fmt.Errorf("%s is a check of stage %s, not of stage %s; use --stage %[2]s", shown, s, stage)
		}
	}
	if name == "all" {
		return errors.New("\"all\" is not a check; leave it out, or use --stage all for the checks of every stage")
	}
	known := make([]string, len(all))
	for i, c := range all {
		known[i] = c.Name()
	}
	if why, dropped := catalog.Dropped()[name]; dropped {
		return fmt.Errorf("nodegate does not check %s any more: %s", name, why)
	}
	use := policy.Nearest(name, known)
	if i := slices.IndexFunc(known, func(k string) bool { return strings.HasSuffix(k, "."+name) }); i >= 0 {
		use = fmt.Sprintf(" Did you mean %q?", known[i])
	}
	if slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, name+".") }) {
		use = fmt.Sprintf(" For all of that kind write '%s.*'.", name)
	} else if _, err := policy.Builtin(name); err == nil {
		use = fmt.Sprintf(" It is a built-in policy: write --policy FILE, and use %q {} in the file.", name)
	}
	if _, err := os.Stat(name); err == nil {
		use = " To read it as a policy, write --policy " + name
	}
	return fmt.Errorf("the policy has no requirement %q at stage %s; list them with `nodegate policy show --effective`.%s",
		name, stage, use)
}

// matching returns the checks whose names match one of the patterns, and the first pattern that matches none, or "".
func matching(all []checks.Check, patterns []string) (list []checks.Check, absent string, err error) {
	wanted := map[string]bool{}
	for _, pattern := range patterns {
		found := false
		for _, c := range all {
			match, err := path.Match(asWord(pattern), asWord(c.Name()))
			if err != nil {
				return nil, "", fmt.Errorf("%q is not a valid pattern: close the bracket", pattern)
			}
			found = found || match
			wanted[c.Name()] = wanted[c.Name()] || match
		}
		if !found && absent == "" {
			absent = pattern
		}
	}
	for _, c := range all {
		if wanted[c.Name()] {
			list = append(list, c)
		}
	}
	return list, absent, nil
}

// asWord lets * match the slashes in a name too: sysfs.* matches sysfs.kernel/mm/ksm/run.
func asWord(name string) string { return strings.ReplaceAll(name, "/", "\x01") }

// without returns the checks of all whose names are not in some.
func without(all, some []checks.Check) []checks.Check {
	names := map[string]bool{}
	for _, c := range some {
		names[c.Name()] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(c checks.Check) bool { return names[c.Name()] })
}
