// Package units is what nodegate puts onto a machine (the systemd units, the kubelet
// drop-in, the files that other tools read) and how it gets there: atomically, and
// with a journal from which it can be removed again.
package units

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/unit"

	"nodegate/policy"
)

// Where things are, on every distribution.
const (
	Binary         = "/usr/local/bin/nodegate"
	PolicyDir      = "/etc/nodegate/policy.d"
	BreakGlassFile = "/etc/nodegate/disabled"
	ApplyUnit      = "nodegate-apply.service"
	unitDir        = "/etc/systemd/system"
	modulesFile    = "/etc/modules-load.d/nodegate.conf"
	sysctlFile     = "/etc/sysctl.d/99-zz-nodegate.conf" // after 99-sysctl.conf and kops' 99-k8s-general.conf
	stateDir       = "/var/lib/nodegate"
	JournalFile    = stateDir + "/journal.json" // exists where nodegate is installed
	backupDir      = stateDir + "/backup"
	lockFile       = "/var/lib/.nodegate.lock" // not in stateDir, which uninstall removes while it is locked
	FetchFile      = "/etc/nodegate/fetch"     // exists where an export has the node fetch the binary
	FetchUnit      = "nodegate-fetch.service"
	dropInSlack    = 30 * time.Second // systemd waits this much longer than the gate's budget
	applyTimeout   = "60s"
)

// OldestSystemd is the oldest that works (docs/supported.md): watch's system calls are
// @system-service, which is not in 238.
const OldestSystemd = 239

// File is one file, or symbolic link, to be installed.
type File struct {
	Path    string
	Mode    fs.FileMode
	Content []byte
	Target  string // of a symbolic link
}

// InForce returns the paths of which one at least exists where nodegate was put in force: by install, or by an export, which has no
// journal. nodeup writes the unit of a hook below /lib or /usr/lib, where also a package has its own, and makes the enabling link; a
// package that is merely installed has no such link.
func InForce() []string {
	return []string{JournalFile, unitDir + "/" + ApplyUnit, enabling(ApplyUnit)}
}

// enabling is the link of a unit with WantedBy=multi-user.target.
func enabling(unit string) string { return unitDir + "/multi-user.target.wants/" + unit }

// GateFile is the drop-in that gives a unit its gate.
func GateFile(unit string) string { return unitDir + "/" + unit + ".d/10-nodegate.conf" }

// Files returns everything an installation consists of, in the order in which it is
// written: what kubelet's start depends on comes last, so that a machine that loses
// power in between still boots.
func Files(p *policy.Policy, texts []policy.File, prog Program) ([]File, error) {
	var files []File
	if prog.content != nil {
		files = append(files, File{Path: prog.path, Mode: 0o755, Content: prog.content})
	}
	seen := map[string]string{}
	for _, t := range texts {
		name := policyName(t.Name)
		if other, ok := seen[name]; ok {
			return nil, fmt.Errorf("%s and %s would both be installed as %s/%s; rename one", other, t.Name, PolicyDir, name)
		}
		seen[name] = t.Name
		files = append(files, File{Path: PolicyDir + "/" + name, Mode: 0o644, Content: t.Text})
	}
	dropIn := GateFile(p.Gate.Unit)
	files = append(files,
		File{Path: modulesFile, Mode: 0o644, Content: modulesLoad(p, prog)},
		File{Path: sysctlFile, Mode: 0o644, Content: sysctlConf(p, prog)},
	)
	if prog.bringsUnits() {
		files = append(files, unitFiles(p.Gate, prog)...)
	}
	files = append(files, publishFiles(p, prog)...)
	if p.Audit.On {
		files = append(files, File{Path: unitDir + "/" + WatchUnit + ".d/10-audit.conf", Mode: 0o644,
			Content: networkDropIn(prog, "an audit block: watch compares kube-proxy's rules with the API server")})
	}
	if prog.allow != "" {
		files = append(files, writableDropIn(prog, ApplyUnit, applyCommand), writableDropIn(prog, WatchUnit, " watch"))
	}
	files = append(files, bootFiles(p.Gate, prog)...)
	return append(files,
		File{Path: enabling(ApplyUnit), Target: prog.unitDir() + "/" + ApplyUnit},
		File{Path: enabling(WatchUnit), Target: prog.unitDir() + "/" + WatchUnit},
		File{Path: dropIn, Mode: 0o644, Content: gateDropIn(p.Gate, prog)},
	), nil
}

func unitFiles(g policy.Gate, prog Program) []File {
	return []File{
		{Path: prog.unitDir() + "/" + ApplyUnit, Mode: 0o644, Content: applyUnit(g, prog)},
		{Path: prog.unitDir() + "/" + WatchUnit, Mode: 0o644, Content: watchUnit(prog)},
	}
}

// policyName returns the base name under which a policy file is installed, which
// keeps it HCL or JSON. It is not hidden: nodegate would not read it.
func policyName(name string) string {
	name = name[strings.LastIndexAny(name, "/:")+1:]
	suffix := ".hcl"
	if text, is := strings.CutSuffix(name, ".json"); is {
		name, suffix = text, ".hcl.json"
	}
	return cmp.Or(strings.TrimLeft(strings.TrimSuffix(name, ".hcl"), "."), "policy") + suffix
}

// applyCommand ends well before applyTimeout.
const applyCommand = " apply --stage boot --timeout 45s"

func applyUnit(g policy.Gate, prog Program) []byte {
	return render(prog.unitHeader()+"# Makes this machine what the policy asks for, before network and kubelet.",
		section("Unit",
			"Description", "Apply the Kubernetes node policy",
			"DefaultDependencies", "no",
			"ConditionKernelCommandLine", "!nodegate=off",
			"ConditionPathExists", "!"+BreakGlassFile,
			"RequiresMountsFor", path.Dir(prog.path)+" /etc/nodegate",
			"Wants", "network-pre.target",
			"After", "local-fs.target systemd-modules-load.service systemd-sysctl.service systemd-sysext.service",
			"Before", "network-pre.target "+g.Unit+" shutdown.target",
			"Conflicts", "shutdown.target",
		), section("Service",
			"Type", "oneshot",
			"RemainAfterExit", "yes",
			"ExecStart", prog.path+applyCommand,
			"TimeoutStartSec", applyTimeout,
			// It loads modules and writes network parameters. It confines itself to
			// files below /run/nodegate, /proc, /sys and /dev: ProtectSystem= and all
			// else that makes a mount namespace is most of what the unit would take.
			// ProtectClock= costs a device filter, up to a quarter of the time, and
			// forbids nothing more: no clock can be set without CAP_SYS_TIME.
			"RuntimeDirectory", "nodegate",
			"RuntimeDirectoryPreserve", "yes",
			"CapabilityBoundingSet", "CAP_SYS_MODULE CAP_NET_ADMIN",
			"NoNewPrivileges", "yes",
			"RestrictAddressFamilies", "AF_UNIX AF_NETLINK AF_INET",
			"RestrictNamespaces", "yes",
			"RestrictRealtime", "yes",
			"RestrictSUIDSGID", "yes",
			"LockPersonality", "yes",
			"MemoryDenyWriteExecute", "yes",
			"SystemCallArchitectures", "native",
		), section("Install",
			"WantedBy", "multi-user.target",
		))
}

func gateDropIn(g policy.Gate, prog Program) []byte {
	return render(prog.fileHeader()+"# Holds "+g.Unit+" until the node passes its policy. Why ExecStartPre and not Requires: "+
		"a failed required job is never tried again.",
		section("Unit",
			"After", ApplyUnit,
			"Wants", ApplyUnit,
			"StartLimitIntervalSec", "0",
		), section("Service",
			"ExecStartPre", "+"+prog.gateCommand(),
			"TimeoutStartSec", startTimeout(g),
			"Restart", "always",
			"RestartSec", "2s",
			"NotifyAccess", "exec",
		))
}

// startTimeout is longer than the gate's budget. It limits the unit's own start too:
// that of kubelet is over at once (Type=simple), but k3s and rke2 wait for their
// datastore and set no limit, so that none is set for other units; the gate ends by
// itself.
func startTimeout(g policy.Gate) string {
	if g.Unit != "kubelet.service" {
		return "infinity"
	}
	return fmt.Sprintf("%ds", int((g.Budget + dropInSlack).Seconds()))
}

func section(name string, pairs ...string) []*unit.UnitOption {
	var all []*unit.UnitOption
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, unit.NewUnitOption(name, pairs[i], pairs[i+1]))
	}
	return all
}

func render(head string, sections ...[]*unit.UnitOption) []byte {
	var all []*unit.UnitOption
	for _, s := range sections {
		all = append(all, s...)
	}
	// Serialize reads from memory: no error is possible.
	text, _ := io.ReadAll(unit.Serialize(all))
	return []byte(head + "\n\n" + string(text))
}

func modulesLoad(p *policy.Policy, prog Program) []byte {
	var b strings.Builder
	b.WriteString(prog.fileHeader())
	for _, m := range p.Modules {
		if m.Applies() {
			fmt.Fprintln(&b, m.Name)
		}
	}
	return []byte(b.String())
}

// sysctlConf returns the values that are exact. sysctl.d cannot express a bound or a
// choice: a fixed value would lower one that is higher for good reason. The check sysctl.who-wins reads which are left out.
func sysctlConf(p *policy.Policy, prog Program) []byte {
	var b strings.Builder
	b.WriteString(prog.fileHeader())
	for _, s := range p.Sysctls {
		switch {
		case s.Off:
		case s.Value != "" && s.Unknown == "":
			fmt.Fprintf(&b, "%s = %s\n", s.Key, s.Value)
		default:
			fmt.Fprintf(&b, "# %s: %s; only `nodegate apply` sees to it\n", s.Key, s.Want())
		}
	}
	return []byte(b.String())
}
