package writers

import (
	"context"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// LikelyWriter returns, for people, the program that this machine's files and units suggest as the
// one that keeps changing a corrected requirement back, and a command that finds it otherwise.
func LikelyWriter(ctx context.Context, h *host.Host, p *policy.Policy, name string) string {
	key, isSysctl := strings.CutPrefix(name, "sysctl.")
	i := slices.IndexFunc(p.Sysctls, func(s policy.Sysctl) bool { return s.Key.String() == key })
	switch {
	case strings.HasPrefix(name, "module."):
		return "a program runs modprobe -r or rmmod; find it with `auditctl -a always,exit -S delete_module`"
	case !isSysctl || i < 0:
		return "an ethtool or ip command of the CNI, NetworkManager, or udev after a .link file; find it with `bpftrace -e " +
			"'kprobe:dev_ethtool { printf(\"%d %s\\n\", pid, comm); }'`"
	}
	want := p.Sysctls[i]
	found, _ := runtimeWriters(ctx, h, &policy.Policy{Sysctls: []policy.Sysctl{want}})
	if boot, reload, err := sysctlFiles(h); err == nil {
		for _, w := range slices.Concat(boot.Setters(string(want.Key)), reload.Setters(string(want.Key))) {
			e := checks.Seen(w.At(), "sets it to "+w.Value+" each time sysctl.d is applied")
			if !want.Allows(w.Value) && !slices.Contains(found, e) {
				found = append(found, e)
			}
		}
	}
	var names []string
	for _, e := range found {
		names = append(names, e.Source+" "+e.Text)
	}
	const catch = "find it with `bpftrace -e 'kprobe:proc_sys_call_handler { printf(\"%d %s\\n\", pid, comm); }'`"
	if names == nil {
		return "no known program writes it; " + catch
	}
	likely, _ := host.Plain(h, key, strings.Join(names, "; or "), nil)
	return likely + "; " + catch
}
