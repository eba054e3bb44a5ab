package kubelet

import (
	"cmp"
	"context"
	"path"
	"regexp"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// values: kubelet exits over a value that it does not accept. Only kubelet itself knows all the rules of its version.
func values() checks.Problem {
	return checks.Problem{
		Name: "kubelet.values", Stages: []checks.Stage{checks.Boot}, Severity: policy.Block, Later: true, Concurrent: true,
		Detects: "kubelet rejects a flag, or a value in its configuration or flags: a removed flag or feature gate, a wrong type, a value " +
			"out of range, an invalid label, taint or cipher.",
		Symptom: "After an upgrade or an edit kubelet restarts forever: \"unrecognized feature gate\", \"failed to validate kubelet " +
			"configuration\" or \"json: cannot unmarshal string into Go struct field KubeletConfiguration.maxPods of type int32\".",
		How: "Runs kubelet 1.31 or later with its unit's flags and extra ones that make it read, merge and validate " +
			"its configuration and then exit: its lock file is the directory /. In this trial it has neither kubeconfig nor runtime, and " +
			"writes no certificate. The output is matched against the known validation errors; any other exit, or none within 10 s, skips " +
			"the check. kubelet is not run if kubelet.config fails, or if its command line has a systemd specifier that cannot be " +
			"resolved, such as %i. kubelet.exit reports the values that kubelet validates later.",
		Remedy: "correct the value, or remove the flag; if a feature gate was removed, remove it from featureGates: its feature is always " +
			"on or gone",
		Ref:     "https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates-removed/",
		Inspect: inspectValues,
	}
}

// trialFlags make kubelet exit after it has validated its configuration (run in cmd/kubelet/app/server.go): the lock file cannot be
// created at /. The other flags keep it from writing a certificate before that (InitializeTLS), reduce its log, and keep a kubelet that
// gets further from doing harm.
func trialFlags(k config.Kubelet) []string {
	flags := []string{
		"--lock-file=/", "--kubeconfig=", "--bootstrap-kubeconfig=", "--container-runtime-endpoint=unix:///dev/null",
		"--tls-cert-file=/dev/null", "--tls-private-key-file=/dev/null", "--v=0",
	}
	if name := k.Flags["config"].Value; name != "" && !path.IsAbs(name) { // the trial runs in another working directory
		flags = append(flags, "--config="+k.Configs[0])
	}
	if dir := k.Flags["config-dir"].Value; dir != "" && !path.IsAbs(dir) {
		flags = append(flags, "--config-dir="+k.DropIns)
	}
	return flags
}

func inspectValues(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.Passing("values that kubelet accepts")
	k, err := h.Kubelet()
	if k.Holder != "" {
		s.Skip = "there is no kubelet program to try the values with: " + k.Unknown
	}
	if !isKnown(k, &s) {
		return s, err
	}
	files, err := inspectConfiguration(ctx, h, p)
	switch {
	case err != nil:
		s.Cause = "kubelet.config"
		return s, err
	case files.Skip != "":
		s.Skip = files.Skip
		return s, nil
	case !files.Pass:
		s.Skip = "kubelet cannot read its configuration, see kubelet.config"
		return s, nil
	}
	if slices.ContainsFunc(k.Command, hasSpecifier) {
		s.Skip = "kubelet's command line has an unresolved systemd specifier"
		return s, nil
	}
	if minor, err := h.KubeletMinor(ctx); err != nil || minor < 31 {
		s.Skip = "kubelet is older than 1.31, not installed, or does not report its version"
		return s, nil
	}
	said, err := h.Kernel.Complaint(ctx, k.Command[0], append(slices.Clone(k.Command[1:]), trialFlags(k)...)...)
	if err != nil {
		s.Skip = "the trial run of kubelet did not exit"
		return s, nil
	}
	why := findRefusedValue(said, k)
	switch {
	// Kubelet takes the lock file of trialFlags after it has validated the values: without that error, silence proves nothing.
	case why == "" && !strings.Contains(said, "unable to acquire file lock"):
		s.Skip = "the trial run of kubelet exited before it validated all values"
	case why != "":
		s.Evidence = []checks.Evidence{checks.Seen(k.Command[0], why)}
		s.Differs(why, "")
		if from := placeOf(h, why, k); from.Source != "" {
			s.Evidence = append(s.Evidence, checks.Seen(from.Source, from.Text))
			s.Remedy = "correct it in " + from.Source + ", or remove it; the feature of a removed feature gate is always on or gone"
		}
	}
	return s, nil
}

// placeOf returns the file, with its last line about it, of the option that a message of kubelet names: a flag, a field, or a feature gate.
func placeOf(h *host.Host, why string, k config.Kubelet) (from config.Source) {
	for _, word := range regexp.MustCompile(`[\w.-]+`).FindAllString(why, -1) {
		from = cmp.Or(k.Values[word].From, k.Values["featureGates."+word].From)
		if flag, is := strings.CutPrefix(word, "--"); is {
			from = k.Flags[flag].From
		} else if gates := k.Flags["feature-gates"]; strings.Contains(gates.Value, word+"=") {
			from = gates.From
		}
		if from.Source == "" {
			continue
		}
		text, _ := h.Files.ReadFile(from.Source)
		lines := strings.Split(string(text), "\n")
		for i, line := range slices.Backward(lines) {
			if strings.Contains(line, word[strings.LastIndex(word, ".")+1:]) {
				from.Source = config.At(from.Source, i+1)
				break
			}
		}
		return from
	}
	return config.Source{}
}

// hasSpecifier reports whether a word still contains a systemd specifier; the percentage of an eviction is not one.
func hasSpecifier(word string) bool { return regexp.MustCompile(`%[a-zA-Z]`).MatchString(word) }

// findRefusedValue returns the message over its values with which kubelet exits, from its whole output, whose lines are joined by "; ".
// It ignores an unknown flag that only the trial gives, and cgroup v1, which kubelet.cgroup-v1 reports.
func findRefusedValue(said string, k config.Kubelet) string {
	for _, begin := range []string{
		"failed to parse kubelet flag: ", "failed to set feature gates", "failed to validate kubelet flags: ",
		"failed to load kubelet config file", "failed to merge kubelet configs", "failed to precedence kubeletConfigFlag", "initialize logging: ",
		"failed to validate kubelet configuration", "failed to construct kubelet dependencies: Cipher suite",
		"failed to construct kubelet dependencies: unknown tls version",
		"failed to merge global and in-flight KubeletConfiguration", // a panic
	} {
		_, why, is := strings.Cut(said, begin)
		if !is || strings.Contains(why, "not run on a host using cgroup v1") {
			continue
		}
		if m := regexp.MustCompile(`^unknown flag: --([\w-]+)`).FindStringSubmatch(why); m != nil && k.Flags[m[1]].Value == "" {
			continue
		}
		why = begin + why
		for _, end := range []string{", path: &TypeMeta", "; ", "\"}"} {
			why, _, _ = strings.Cut(why, end)
		}
		return strings.ReplaceAll(strings.TrimSuffix(why, `"`), `\"`, `"`)
	}
	return ""
}
