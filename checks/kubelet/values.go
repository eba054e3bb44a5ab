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

// values: kubelet exits over a value that it does not accept. Only kubelet itself knows all of them, in its version.
func values() checks.Problem {
	return checks.Problem{
		Name: "kubelet.values", Stages: []checks.Stage{checks.Boot}, Severity: policy.Block, Later: true, Concurrent: true,
		Detects: "kubelet refuses what its configuration or its flags say: a feature gate that its version does not have any more, a value of " +
			"another type or outside its bounds, a label, a taint or a cipher that is none, a sysctl for Pods that is the whole machine's.",
		Symptom: "After an upgrade or an edit kubelet restarts for ever: \"unrecognized feature gate\", \"failed to validate kubelet " +
			"configuration\" or \"json: cannot unmarshal string into Go struct field KubeletConfiguration.maxPods of type int32\".",
		How: "kubelet from 1.31 on is run with its unit's flags, and with some more, with which it reads, merges and validates its " +
			"configuration and exits before anything else: its lock file is /, a directory. It has neither a kubeconfig nor a runtime then, " +
			"and writes no certificate. What it says is compared with the errors of that part; that it ends in another way, or not in 10 s, " +
			"says nothing. It is not run where kubelet.config fails, nor with a specifier of systemd that is unknown here, such as %i. " +
			"containerLogMaxSize, allowedUnsafeSysctls and --node-ip, which kubelet looks at later, are read as every version does.",
		Remedy:   "correct the value; a feature gate that is gone is always on, or its feature was taken out: take it out of featureGates",
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates-removed/",
		Inspect:  inspectValues,
	}
}

// trialFlags make kubelet exit after it has validated its configuration (run in cmd/kubelet/app/server.go): no file can be made at /. With
// the others it writes no certificate before (InitializeTLS) and says little, and one that would get further does no harm either.
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
		s.Skip = "kubelet's command line cannot be known: " + k.Unknown
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
	if why, seen := refusedLater(k); why != nil {
		s.Evidence = seen
		s.Differs(strings.Join(why, "; "), "")
		return s, nil
	}
	switch {
	case slices.ContainsFunc(k.Command, hasSpecifier):
		s.Skip = "kubelet's command line has a specifier of systemd"
		return s, nil
	case slices.ContainsFunc(append([]string{cmp.Or(k.DropIns, "/")}, k.Configs...), func(name string) bool { return !path.IsAbs(name) }):
		s.Skip = "kubelet's configuration is relative to its working directory"
		return s, nil
	}
	if minor, err := h.KubeletMinor(ctx); err != nil || minor < 31 {
		s.Skip = "kubelet is older than 1.31, is not here, or does not say its version"
		return s, nil
	}
	said, err := h.Kernel.Complaint(ctx, k.Command[0], append(slices.Clone(k.Command[1:]), trialFlags()...)...)
	if err != nil {
		s.Skip = "kubelet, run for a trial, does not end"
		return s, nil
	}
	why := refusedValue(said)
	switch {
	case why == "" && !strings.Contains(said, "unable to acquire file lock"):
		s.Skip = "kubelet, run for a trial, ends before it has looked at all values"
	case strings.HasPrefix(why, "failed to parse kubelet flag") && asksKubelet(k):
		s.Skip = "kubelet.flags says so"
	case why != "":
		s.Evidence = []checks.Evidence{checks.Seen(k.Command[0], why)}
		s.Differs(why, "")
	}
	return s, nil
}

// refusedLater returns why kubelet exits over values at which it looks after its lock file, in every version.
func refusedLater(k config.Kubelet) (why []string, seen []checks.Evidence) {
	blame := func(v config.KubeletValue, text string) {
		why, seen = append(why, text), append(seen, checks.Seen(v.From.Source, v.From.Text))
	}
	if size := k.Values["containerLogMaxSize"]; size.Value != "" { // NewContainerLogManager in pkg/kubelet/logs
		// Of fractions Quantity.AsInt64 takes only decimal ones that make a whole number: 1.5M, not 1.5Mi.
		fraction := regexp.MustCompile(`\.0*[1-9][0-9]*([KMGTPE]i)?$|[num]$`)
		if _, valid := quantity(size.Value); !valid || fraction.MatchString(size.Value) {
			blame(size, fmt.Sprintf("containerLogMaxSize is %q, no whole quantity such as 10Mi", size.Value))
		}
	}
	unsafe := k.Values["allowedUnsafeSysctls"]
	// GetNamespace in k8s.io/component-helpers/node/util/sysctl; older versions know fewer.
	known := regexp.MustCompile(`^$|^(net|fs[./]mqueue|user)[./]|^kernel[./](sem|shm|msg|domainname)`)
	for name := range strings.SplitSeq(unsafe.Value, ",") {
		if !known.MatchString(name) {
			blame(unsafe, "allowedUnsafeSysctls has "+name+", which a Pod cannot have for itself")
		}
	}
	ip := k.Flags["node-ip"]
	var ips []net.IP // ParseNodeIPArgument in k8s.io/component-helpers/node/util; it passes over what is no address
	for text := range strings.SplitSeq(ip.Value, ",") {
		if parsed := net.ParseIP(strings.TrimSpace(text)); parsed != nil {
			ips = append(ips, parsed)
		}
	}
	is4 := func(ip net.IP) bool { return ip.To4() != nil }
	switch {
	case len(ips) > 2 || len(ips) == 2 && is4(ips[0]) == is4(ips[1]):
		blame(ip, "--node-ip="+ip.Value+" is neither one address nor one of each family")
	case len(ips) == 2 && slices.ContainsFunc(ips, net.IP.IsUnspecified):
		blame(ip, "--node-ip="+ip.Value+" has an address that is none")
	}
	return why, seen
}

// hasSpecifier reports whether a word still has a specifier, which systemd replaces: not the percentage of an eviction.
func hasSpecifier(word string) bool { return regexp.MustCompile(`%[a-zA-Z]`).MatchString(word) }

// asksKubelet reports whether kubelet.flags lets kubelet parse its flags.
func asksKubelet(k config.Kubelet) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(k.Flags)), func(flag string) bool { return !ordinary(flag) })
}

// refusedValue returns why kubelet exits over its values, of all that it said, its lines joined by "; ". Unknown flags and the labels that
// are Kubernetes' own are what kubelet.flags says, cgroup v1 kubelet.cgroup-v1; a flag that is unknown may be of the trial's own.
func refusedValue(said string) string {
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
