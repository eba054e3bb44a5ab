package preview

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host/config"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// forecastReports compares the new policy with the reports of an older policy.
func (p Policy) forecastReports(d Document) ([]Forecast, error) {
	read, err := report.Decode(d.Name, bytes.NewReader(d.Text))
	if err != nil {
		return nil, err
	}
	var nodes []Forecast
	for _, old := range read {
		loaded, err := p.load(old.File, facts(old.Node))
		if err != nil {
			return nodes, err
		}
		known := map[string]report.Result{}
		for _, r := range old.Results {
			known[r.Name] = r
		}
		found := checks.Outcome{Stage: checks.Boot}
		for _, c := range catalog.For(loaded, checks.Boot) {
			was, has := known[c.Name()]
			r := checks.Result{Name: c.Name(), Metadata: c.Metadata(), Follows: was.Because}
			switch {
			case r.Metadata.Off:
				r.Verdict = verdict.Skipped
			case r.Metadata.Unknown != "":
				r.Err = fmt.Errorf("it depends on %s, which the report does not contain", r.Metadata.Unknown)
			case !has:
				r.Err = errors.New("not in the report; take a snapshot with the new policy")
			default:
				compareResult(&r, was, loaded)
			}
			found.Results = append(found.Results, r)
		}
		becomes := old.Report
		becomes.Policy = report.NewPolicy(loaded)
		becomes.Stage, becomes.Results = string(checks.Boot), nil
		for _, r := range found.Results {
			becomes.Results = append(becomes.Results, report.NewResult(r))
		}
		nodes = append(nodes, newNode(old.File, found, becomes))
	}
	return nodes, nil
}

// facts returns a lookup of the facts that a report contains.
func facts(n report.Node) func(string) (any, bool) {
	return func(name string) (any, bool) {
		switch name {
		case "kernel.release":
			return n.Kernel, n.Kernel != ""
		case "kernel.version":
			release, err := config.ParseKernelRelease(n.Kernel)
			return release.Numbers, err == nil
		}
		return nil, false
	}
}

// compareResult sets the verdict of r by comparing a report's result with the new policy.
func compareResult(r *checks.Result, was report.Result, p *policy.Policy) {
	r.State = checks.State{Want: was.Want, Got: was.Got, Remedy: was.Remedy, Cause: was.Because}
	changeable := false
	module := wantOfModule(p, r.Name)
	all := slices.Concat(p.Sysctls, p.Sysfs)
	switch i := slices.IndexFunc(all, func(s policy.Sysctl) bool { return s.Key.CheckName() == r.Name }); {
	case was.Verdict == verdict.Unknown:
		r.Err = errors.New(was.Error)
		return
	case was.Verdict == verdict.Skipped && strings.HasPrefix(was.Skipped, checks.SkippedOff):
		r.Err = errors.New("the policy of the report did not require it on this node; take a snapshot with the new policy")
		return
	case matchedLinks(was) != r.Metadata.Selects:
		r.Err = fmt.Errorf("the report is about other interfaces, %q; take a snapshot with the new policy", matchedLinks(was))
		return
	case was.Verdict == verdict.Skipped:
		r.Verdict, r.State.Skip = verdict.Skipped, was.Skipped
		return
	// The report has one text for all parameters of a glob: only a single value can be compared with the new policy.
	case i >= 0 && !all[i].Key.IsGlob():
		s := all[i]
		r.State.Want, r.State.Pass = s.Want(), s.Allows(was.Got)
		changeable = was.Got != "no such parameter" || policy.ModuleFor(s.Key, p.ModuleNames()) != ""
	case module != "" && module != was.Want && (module != "loaded" || was.Want != "built in"):
		r.Err = fmt.Errorf("the report is about another value, %q; take a snapshot with the new policy", was.Want)
		return
	case module == "loaded":
		r.State.Pass = was.Got == "loaded" || was.Got == "built in"
		changeable = was.Got == "not loaded"
	case i >= 0 && all[i].Want() != was.Want, strings.HasPrefix(r.Name, "link.") && wantOfLink(p, r.Name) != was.Want:
		r.Err = fmt.Errorf("the report is about another value, %q; take a snapshot with the new policy", was.Want)
		return
	default:
		r.State.Pass = was.Verdict == verdict.Pass
		changeable = i >= 0 || module != "" && was.Got == "not loaded"
	}
	switch {
	case r.State.Pass:
		r.Verdict = verdict.Pass
	case r.Metadata.Severity == policy.Warn:
		r.Verdict = verdict.Warn
	default:
		r.Verdict = verdict.Fail
	}
	if changeable && !r.State.Pass {
		r.State.Changes = []checks.Change{{What: r.Name, From: r.State.Got, To: r.State.Want}}
	}
}

// wantOfModule returns "" if the name is not a module's.
func wantOfModule(p *policy.Policy, name string) string {
	for _, m := range p.Modules {
		if "module."+m.Name == name {
			return m.Want()
		}
	}
	return ""
}

func wantOfLink(p *policy.Policy, name string) string {
	for _, l := range p.Links {
		if "link."+l.Name == name {
			return l.Want()
		}
	}
	return ""
}

// matchedLinks returns the interfaces of a result, or "" for a result without interfaces.
func matchedLinks(r report.Result) string {
	for _, e := range r.Evidence {
		if e.Source == report.MatchEvidence {
			return e.Text
		}
	}
	return ""
}
