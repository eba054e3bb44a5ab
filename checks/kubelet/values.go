package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// values: kubelet exits over a value that it does not accept. Only kubelet itself knows all the
// rules of its version.
func values() checks.Problem {
	return checks.Problem{
		Name: "kubelet.values", Stages: []checks.Stage{checks.Boot}, Severity: policy.Block, Later: true, Concurrent: true,
		Detects: "kubelet rejects a value in its configuration or flags: a removed feature gate, a wrong type, a value " +
			"out of range, an invalid label, taint or cipher, or a sysctl for Pods that belongs to the whole machine.",
		Symptom: "After an upgrade or an edit kubelet restarts forever: \"unrecognized feature gate\", \"failed to " +
			"validate kubelet configuration\" or \"json: cannot unmarshal string into Go struct field KubeletConfiguration.maxPods of " +
			"type int32\".",
		How: "Runs kubelet 1.31 or later with its unit's flags and extra ones that make it read, merge and validate " +
			"its configuration and then exit: its lock file is the directory /. In this trial it has neither kubeconfig nor runtime, and " +
			"writes no certificate. The output is matched against the known validation errors; any other exit, or none within 10 s, skips " +
			"the check. kubelet is not run if kubelet.config fails, or if its command line has a systemd specifier that cannot be " +
			"resolved, such as %i. containerLogMaxSize, allowedUnsafeSysctls, syncFrequency, --node-ip, --lock-file and " +
			"--exit-on-lock-contention, which kubelet validates later, are parsed by the same rules.",
		Remedy: "correct the value; if a feature gate was removed, remove it from featureGates: its feature is always " +
			"on or gone",
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates-removed/",
		Inspect:  inspectValues,
	}
}

// trialFlags make kubelet exit after it has validated its configuration (run in
// cmd/kubelet/app/server.go): the lock file cannot be created at /. The other flags keep it from
// writing a certificate before that (InitializeTLS), reduce its log, and keep a kubelet that gets
// further from doing harm.
func trialFlags() []string {
	return []string{
		"--lock-file=/", "--kubeconfig=", "--bootstrap-kubeconfig=", "--container-runtime-endpoint=unix:///dev/null",
		"--tls-cert-file=/dev/null", "--tls-private-key-file=/dev/null", "--v=0",
	}
}

func inspectValues(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.Passing("values that kubelet accepts")
	k, err := h.Kubelet()
	if k.Command == nil {
		s.Skip = "kubelet's command line is unknown: " + k.Unknown
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
	if files.Evidence != nil {
		s.Skip = "the unit writes kubelet's configuration when it starts: " + files.Evidence[0].Source
		return s, nil
	}
	wrong, seen := checkLateValues(k)
	if lock := k.Flags["lock-file"]; path.IsAbs(lock.Value) {
		exists, err := h.Files.Exists(path.Dir(lock.Value))
		if err != nil {
			return s, err
		}
		if !exists {
			wrong = append(wrong, "the directory of --lock-file="+lock.Value+" does not exist")
			seen = append(seen, checks.Seen(lock.From.Source, lock.From.Text))
		}
	}
	if wrong != nil {
		s.Evidence = seen
		s.Differs(strings.Join(wrong, "; "), "")
		return s, nil
	}
	switch {
	case slices.ContainsFunc(k.Command, hasSpecifier):
		s.Skip = "kubelet's command line has an unresolved systemd specifier"
		return s, nil
	case slices.ContainsFunc(append([]string{cmp.Or(k.DropIns, "/")}, k.Configs...), func(name string) bool { return !path.IsAbs(name) }):
		s.Skip = "the path of kubelet's configuration is relative to its working directory"
		return s, nil
	}
	if minor, err := h.KubeletMinor(ctx); err != nil || minor < 31 {
		s.Skip = "kubelet is older than 1.31, not installed, or does not report its version"
		return s, nil
	}
	said, err := h.Kernel.Complaint(ctx, k.Command[0], append(slices.Clone(k.Command[1:]), trialFlags()...)...)
	if err != nil {
		s.Skip = "the trial run of kubelet did not exit"
		return s, nil
	}
	why := findRefusedValue(said)
	switch {
	case why == "" && !strings.Contains(said, "unable to acquire file lock"):
		s.Skip = "the trial run of kubelet exited before it validated all values"
	case strings.HasPrefix(why, "failed to parse kubelet flag") && flagsCheckRunsKubelet(k):
		s.Skip = "reported by kubelet.flags"
	case why != "":
		s.Evidence = []checks.Evidence{checks.Seen(k.Command[0], why)}
		s.Differs(why, "")
	}
	return s, nil
}

// checkLateValues returns why kubelet exits over values that every version validates after creating
// its lock file.
func checkLateValues(k config.Kubelet) (why []string, seen []checks.Evidence) {
	addWrong := func(v config.KubeletValue, text string) {
		why, seen = append(why, text), append(seen, checks.Seen(v.From.Source, v.From.Text))
	}
	if size := k.Values["containerLogMaxSize"]; size.Value != "" { // NewContainerLogManager in pkg/kubelet/logs
		// Quantity.AsInt64 accepts only decimal fractions that make a whole number: 1.5M, not 1.5Mi.
		fraction := regexp.MustCompile(`\.0*[1-9][0-9]*([KMGTPE]i)?$|[num]$`)
		if _, valid := parseQuantity(size.Value); !valid || fraction.MatchString(size.Value) {
			addWrong(size, fmt.Sprintf("containerLogMaxSize is %q; it must be a whole quantity such as 10Mi", size.Value))
		}
	}
	if lock := k.Flags["exit-on-lock-contention"]; lock.Value == "true" && k.Flags["lock-file"].Value == "" { // run in server.go
		addWrong(lock, "--exit-on-lock-contention needs --lock-file")
	}
	if sync := k.Values["syncFrequency"]; strings.HasPrefix(sync.Value, "-") { // NewMainKubelet
		addWrong(sync, "syncFrequency is "+sync.Value+"; it must be positive")
	}
	unsafe := k.Values["allowedUnsafeSysctls"]
	// GetNamespace in k8s.io/component-helpers/node/util/sysctl; older versions know fewer.
	known := regexp.MustCompile(`^$|^(net|fs[./]mqueue|user)[./]|^kernel[./](sem|shm|msg|domainname)`)
	for name := range strings.SplitSeq(unsafe.Value, ",") {
		if !known.MatchString(name) {
			addWrong(unsafe, "allowedUnsafeSysctls has "+name+", which is not namespaced")
		}
	}
	ip := k.Flags["node-ip"]
	var ips []net.IP // ParseNodeIPArgument in k8s.io/component-helpers/node/util; it ignores texts that are not addresses
	for text := range strings.SplitSeq(ip.Value, ",") {
		if parsed := net.ParseIP(strings.TrimSpace(text)); parsed != nil {
			ips = append(ips, parsed)
		}
	}
	is4 := func(ip net.IP) bool { return ip.To4() != nil }
	switch {
	case len(ips) > 2 || len(ips) == 2 && is4(ips[0]) == is4(ips[1]):
		addWrong(ip, "--node-ip="+ip.Value+" must be one address, or one of each family")
	case len(ips) == 2 && slices.ContainsFunc(ips, net.IP.IsUnspecified):
		addWrong(ip, "--node-ip="+ip.Value+" must not contain an unspecified address")
	}
	return why, seen
}

// hasSpecifier reports whether a word still contains a systemd specifier; the percentage of an
// eviction is not one.
func hasSpecifier(word string) bool { return regexp.MustCompile(`%[a-zA-Z]`).MatchString(word) }

// flagsCheckRunsKubelet reports whether kubelet.flags runs kubelet to parse its flags.
func flagsCheckRunsKubelet(k config.Kubelet) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(k.Flags)), func(flag string) bool { return !isOrdinaryFlag(flag) })
}

// findRefusedValue returns the message over its values with which kubelet exits, from its whole
// output, whose lines are joined by "; ". It ignores unknown flags and Kubernetes' own labels,
// which kubelet.flags reports (an unknown flag may also be one of the trial's), and cgroup v1,
// which kubelet.cgroup-v1 reports.
func findRefusedValue(said string) string {
	for _, begin := range []string{
		"failed to parse kubelet flag: invalid argument", "failed to set feature gates", "failed to validate kubelet flags: invalid node labels",
		"failed to load kubelet config file", "failed to merge kubelet configs", "failed to precedence kubeletConfigFlag", "initialize logging: ",
		"failed to validate kubelet configuration", "failed to construct kubelet dependencies: Cipher suite",
		"failed to construct kubelet dependencies: unknown tls version",
		"failed to merge global and in-flight KubeletConfiguration", // a panic
	} {
		_, why, is := strings.Cut(said, begin)
		if !is || strings.Contains(why, "not run on a host using cgroup v1") {
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
