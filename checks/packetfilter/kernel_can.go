package packetfilter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// kernelCan detects missing kernel modules. Without them, the kernel rejects kube-proxy's rules at every sync, and no
// Service works.
func kernelCan() checks.Problem {
	return checks.Problem{
		Name: "packetfilter.kernel-can", Stages: []checks.Stage{checks.Image, checks.Boot, checks.Run}, Severity: policy.Block, Weighs: true,
		Later: true, Concurrent: true,
		Detects: "The kernel rejects a form of rule that kube-proxy writes: a module is not installed or cannot be loaded.",
		Symptom: "No Service works, and every few seconds kube-proxy logs \"RULE_APPEND failed (No such file or directory)\" or \"Could not " +
			"process rule\". This happens on Enterprise Linux 10 without kernel-modules-extra and on small cloud kernels.",
		How: "If kube-proxy's configuration is on the node, each form of rule of its mode is tried in a temporary network namespace, which " +
			"loads the modules that it needs, as kube-proxy does. In an image, which cannot run a program, and for IPVS and its sets, the " +
			"kernels' files show which modules exist. If an image does not show the mode, all modules for iptables or all modules for nftables " +
			"must exist.",
		Remedy: "install the package that provides the module for this kernel: kernel-modules-extra, linux-modules-extra or linux-image",
		TradeOff: "Enterprise Linux keeps the old modules in kernel-modules-extra because they are maintained " +
			"less; nftables mode does not need them.",
		Ref:     "https://github.com/kubernetes/kops/issues/18724",
		Inspect: inspectKernelCan,
	}
}

func inspectKernelCan(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.Passing("every form of rule accepted")
	mode, from, err := proxyMode(h, p)
	if err != nil {
		return s, err
	}
	if !h.Live() {
		return inspectImageCan(h, mode)
	}
	if from == "" {
		s.Skip = "kube-proxy's mode is unknown"
		return s, nil
	}
	s.Evidence = []checks.Evidence{checks.Seen(from, "mode "+mode)}
	release, err := h.Kernel.Release()
	if err != nil {
		return s, err
	}
	_, unlisted := h.InstalledModule(release, "ip_vs")
	listed := !errors.Is(unlisted, fs.ErrNotExist)
	var wrong []string
	var unfinished error
	for _, family := range servedFamilies(h) {
		forms := proxyForms(mode, family)
		whole, texts := buildInput(forms)
		program := restoreProgram(mode, family)
		rejected, err := h.Rules.Takes(ctx, program, whole, texts)
		if rejected == nil {
			rejected = make([]string, len(forms))
		}
		if errors.Is(err, context.DeadlineExceeded) { // the rejections so far count
			unfinished, err = err, nil
		}
		if err != nil { // not installed, or not allowed: the files decide
			s.Evidence = append(s.Evidence, checks.Seen(program, err.Error()))
		}
		if err == nil && family == 6 && mode != "nftables" && rejectsNAT(forms, rejected) {
			s.Evidence = append(s.Evidence, checks.Seen(program, "no table nat: kube-proxy serves IPv4 only"))
			continue
		}
		for i, f := range forms {
			missing, bad := missingModules(h, release, f.modules)
			tried := err == nil && f.text != ""
			switch {
			case err == nil && f.text == "" && !listed: // all of them may be built in
				continue
			case !tried && bad != nil:
				return s, bad
			case tried && !isKernelRejection(rejected[i]), !tried && missing == nil:
				continue
			case missing == nil: // installed, but cannot be loaded
				missing = f.modules
			}
			s.Evidence = append(s.Evidence, checks.Seen(program, strings.TrimSpace(f.name+": "+rejected[i])))
			for _, names := range missing {
				wrong = append(wrong, firstName(names))
			}
		}
	}
	if wrong != nil {
		slices.Sort(wrong)
		wrong = slices.Compact(wrong)
		list := strings.Join(wrong, ", ")
		s.Differs("unavailable modules: "+list, h.LoadRemedy("install "+h.ModulePackage(release)+" for "+list+", then run `modprobe -a "+
			strings.Join(wrong, " ")+"`", wrong...))
		return s, nil
	}
	return s, unfinished
}

// isKernelRejection reports whether the kernel rejected the rules, and not the program that should have sent them.
func isKernelRejection(rejected string) bool {
	pattern := regexp.MustCompile(`RULE_\w+ failed|CHAIN_\w+ failed|Could not process rule|missing kernel module|No chain/target/match|` +
		`Table does not exist|line \d+ failed|cache initialization failed|Unable to initialize Netlink`)
	return pattern.MatchString(rejected) && !strings.Contains(rejected, "Couldn't load")
}

// proxyMode returns kube-proxy's mode and its source: kube-proxy's configuration, or the modules in the policy.
func proxyMode(h *host.Host, p *policy.Policy) (mode, from string, err error) {
	c, err := config.ReadKubeProxy(h.Files)
	if err != nil || c.From != "" {
		return c.Mode, c.From, err
	}
	for _, m := range p.Modules {
		switch m.Name {
		case "nft_chain_nat":
			return "nftables", "policy", nil
		case "ip_vs":
			return "ipvs", "policy", nil
		}
	}
	return "", "", nil
}

// servedFamilies returns the families that kube-proxy serves: 4, and 6 if the kernel supports it and it is not disabled
// (platformCheckSupported in cmd/kube-proxy/app/server_linux.go).
func servedFamilies(h *host.Host) []int {
	const off = "/proc/sys/net/ipv6/conf/all/disable_ipv6"
	if exists, err := h.Files.Exists("/proc/sys/net/ipv6"); err == nil && !exists {
		return []int{4}
	}
	if value, err := h.Text(off); err == nil && strings.TrimSpace(value) == "1" {
		return []int{4}
	}
	return []int{4, 6}
}

// rejectsNAT reports whether the kernel rejects everything in table nat. kube-proxy checks whether that table exists, and
// does not serve a family without it (Present in pkg/util/iptables).
func rejectsNAT(forms []form, rejected []string) bool {
	for i, f := range forms {
		if f.table == "nat" && f.text != "" && !isKernelRejection(rejected[i]) {
			return false
		}
	}
	return true
}

func restoreProgram(mode string, family int) string {
	switch {
	case mode == "nftables":
		return "nft"
	case family == 6:
		return "ip6tables-restore"
	}
	return "iptables-restore"
}

// missingModules returns the modules that the kernel lacks. "NEW|OLD" names a module that was renamed in Linux 5.2.
func missingModules(h *host.Host, release string, modules []string) (missing []string, err error) {
	for _, names := range modules {
		state := host.ModuleMissing
		for name := range strings.SplitSeq(names, "|") {
			is, bad := h.InstalledModule(release, name)
			if h.Live() {
				running, err := h.Module(name)
				if unlisted := errors.Is(bad, fs.ErrNotExist); err != nil || running != host.ModuleMissing || !unlisted {
					is, bad = running, err
				} // else it may be built in: a kernel without modules lacks the list
			}
			if bad != nil {
				err = fmt.Errorf("looking for module %s: %w", name, bad)
			}
			if is != host.ModuleMissing {
				state = is
			}
		}
		if state == host.ModuleMissing {
			missing = append(missing, firstName(names))
		}
	}
	return missing, err
}

func firstName(names string) string {
	name, _, _ := strings.Cut(names, "|")
	return name
}

// inspectImageCan judges every installed kernel by its files.
func inspectImageCan(h *host.Host, mode string) (checks.State, error) {
	s := checks.Passing("every form of rule accepted")
	releases, err := h.Releases()
	if err != nil {
		return s, err
	}
	var wrong, packages []string
	for _, release := range releases {
		modes := []string{mode}
		if mode == "" {
			modes = []string{"iptables", "nftables"}
		}
		var lacks []string
		for _, m := range modes {
			var all []string
			for _, family := range []int{4, 6} {
				for _, f := range proxyForms(m, family) {
					missing, err := missingModules(h, release, f.modules)
					if err != nil {
						return s, err
					}
					all = append(all, missing...)
				}
			}
			if slices.Sort(all); all != nil {
				lacks = append(lacks, m+" mode lacks "+strings.Join(slices.Compact(all), ", "))
			}
		}
		if lacks != nil {
			s.Evidence = append(s.Evidence, checks.Seen("/lib/modules/"+release, strings.Join(lacks, "; ")))
		}
		// If the mode is not known yet, one mode that works is enough.
		if len(lacks) == len(modes) {
			wrong = append(wrong, release+": "+strings.Join(lacks, "; "))
			packages = append(packages, h.ModulePackage(release))
		}
	}
	switch {
	case len(releases) == 0:
		s.Differs("no kernel in the image", "install a kernel with its modules below /lib/modules")
	case wrong != nil:
		s.Differs(strings.Join(wrong, "; "), "install "+strings.Join(packages, ", "))
	}
	return s, nil
}
