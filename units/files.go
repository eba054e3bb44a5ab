// Package units installs nodegate's files on a machine: the systemd units, the drop-in for kubelet,
// and files that other tools read. It writes them atomically and keeps a journal, from which
// Uninstall restores the previous state.
package units

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/unit"

	"nodegate/policy"
)

// Paths and units that are the same on every distribution.
const (
	Binary         = "/usr/local/bin/nodegate"
	PolicyDir      = "/etc/nodegate/policy.d"
	BreakGlassFile = "/etc/nodegate/disabled"
	ApplyUnit      = "nodegate-apply.service"
	unitDir        = "/etc/systemd/system"
	modulesFile    = "/etc/modules-load.d/nodegate.conf"
	sysctlFile     = "/etc/sysctl.d/99-zz-nodegate.conf"   // after 99-sysctl.conf and kops' 99-k8s-general.conf
	modprobeFile   = "/etc/modprobe.d/99-zz-nodegate.conf" // the last value of an option counts
	stateDir       = "/var/lib/nodegate"
	JournalFile    = stateDir + "/journal.json" // exists while nodegate is installed
	backupDir      = stateDir + "/backup"
	lockFile       = "/var/lib/.nodegate.lock" // not in stateDir, which uninstall removes while it is locked
	FetchFile      = "/etc/nodegate/fetch"     // exists if the node downloads the binary, as some exports configure it
	FetchUnit      = "nodegate-fetch.service"
	dropInSlack    = 30 * time.Second // systemd waits this much longer than the gate's budget
	applyTimeout   = "60s"
)

// OldestSystemd is the oldest version that works (docs/supported.md): the filter of watch's system
// calls uses @system-service, which 238 lacks.
const OldestSystemd = 239

// File is a file or symbolic link to install.
type File struct {
	Path    string
	Mode    fs.FileMode
	Content []byte
	Target  string // of a symbolic link
}

// InForce returns paths of which at least one exists if nodegate is active on a machine, through install or an export. An export
// has no journal. nodeup writes the unit of a hook below /lib or /usr/lib, as packages do, but also creates the enabling link,
// which a package does not.
func InForce() []string {
	return []string{JournalFile, unitDir + "/" + ApplyUnit, enabling(ApplyUnit)}
}

// enabling returns the path of the link that enables a unit with WantedBy=multi-user.target.
func enabling(unit string) string { return unitDir + "/multi-user.target.wants/" + unit }

// GateFile returns the path of the drop-in that adds the gate to a unit.
func GateFile(unit string) string { return unitDir + "/" + unit + ".d/10-nodegate.conf" }

// Files returns the files of an installation in the order in which they are written. The drop-in that
// kubelet's start depends on comes last, so that kubelet still starts after a loss of power in between.
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
	if text := modprobeConf(p, prog); text != nil {
		files = append(files, File{Path: modprobeFile, Mode: 0o644, Content: text})
	}
	if prog.bringsUnits() {
		files = append(files, unitFiles(p.Gate, prog)...)
	}
	if p.Publish.Condition != "" && p.Publish.By == policy.ByWatch {
		files = append(files, File{Path: unitDir + "/" + WatchUnit + ".d/10-publish.conf", Mode: 0o644,
			Content: networkDropIn(prog, "a publish block: watch writes a condition of this node's Node")})
	}
	if slices.ContainsFunc(p.Probes, func(pr policy.Probe) bool { return pr.Name == policy.Service && pr.Applies() }) {
		files = append(files, File{Path: unitDir + "/" + WatchUnit + ".d/10-probe.conf", Mode: 0o644,
			Content: networkDropIn(prog, "a probe \"service\": watch connects to it")})
	}
	if slices.ContainsFunc(p.Problems, func(pr policy.Problem) bool { return slices.Contains(sendPackets(), pr.Name) && pr.Applies() }) {
		files = append(files, File{Path: unitDir + "/" + WatchUnit + ".d/10-packets.conf", Mode: 0o644,
			Content: packetsDropIn(prog, "a check that sends packets through a copy of the node's network")})
	}
	if p.Audit.On {
		files = append(files, File{Path: unitDir + "/" + WatchUnit + ".d/10-audit.conf", Mode: 0o644,
			Content: packetsDropIn(prog, "an audit block: watch compares kube-proxy's rules with the API server")})
	}
	if prog.allow != "" {
		files = append(files, writableDropIn(prog, ApplyUnit, applyCommand), writableDropIn(prog, WatchUnit, " watch"))
	}
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

// policyName returns the base name under which a policy file is installed. It is never hidden, because nodegate ignores hidden files.
func policyName(name string) string {
	name = name[strings.LastIndexAny(name, "/:")+1:]
	return cmp.Or(strings.TrimLeft(strings.TrimSuffix(name, ".hcl"), "."), "policy") + ".hcl"
}

// applyCommand has a timeout well below applyTimeout.
const applyCommand = " apply --stage boot --timeout 45s"

func applyUnit(g policy.Gate, prog Program) []byte {
	return render(prog.unitHeader()+"# Applies the node policy before the network and kubelet start.",
		section("Unit",
			"Description", "Apply the Kubernetes node policy",
			"DefaultDependencies", "no",
			"ConditionKernelCommandLine", "!nodegate=off",
			"ConditionPathExists", "!"+BreakGlassFile,
			"RequiresMountsFor", path.Dir(prog.path)+" /etc/nodegate",
			"Wants", "network-pre.target",
			"After", applyAfter(prog),
			"Before", "network-pre.target "+g.Unit+" shutdown.target",
			"Conflicts", "shutdown.target",
		), section("Service", slices.Concat([]string{
			"Type", "oneshot",
			"RemainAfterExit", "yes",
			"ExecStart", prog.path + applyCommand,
			"TimeoutStartSec", applyTimeout,
			// The unit loads modules and writes network parameters. nodegate itself
			// writes only below /run/nodegate, /proc, /sys and /dev, so the unit needs no
			// ProtectSystem= or other option that creates a mount namespace: that would
			// take most of the unit's time. ProtectClock= adds a device filter, which takes
			// up to a quarter of the time, and no protection: setting a clock needs CAP_SYS_TIME.
			"RuntimeDirectory", "nodegate",
			"RuntimeDirectoryPreserve", "yes",
			"CapabilityBoundingSet", "CAP_SYS_MODULE CAP_NET_ADMIN",
			"RestrictAddressFamilies", "AF_UNIX AF_NETLINK AF_INET",
			"RestrictNamespaces", "yes",
		}, restrictions())...), section("Install",
			"WantedBy", "multi-user.target",
		))
}

// restrictions returns the restrictions of the unit that runs before kubelet. They need no mount namespace, which would take time
// and would hide the machine's own mounts from the checks. The list of forbidden system calls is a list of exceptions: systemd
// before 250 does not know Landlock's system calls, and would forbid them in a list of permitted ones.
func restrictions() []string {
	return slices.Concat(limits(), []string{"NoNewPrivileges", "yes"}, commonRestrictions(), []string{ // Landlock needs NoNewPrivileges=
		"SystemCallFilter", "~@clock @cpu-emulation @debug @mount @obsolete @raw-io @reboot @resources @swap",
		"SystemCallFilter", "adjtimex", // reads the state of the clock
	})
}

// applyAfter returns the units that precede the apply unit. local-fs.target is not among them: a mount
// that needs cloud-init or the network makes it wait for network-pre.target, which waits for the apply
// unit, and systemd would break that cycle by deleting a job at random. RequiresMountsFor= orders the
// apply unit after the mounts of its own directories. systemd-sysext.service, which itself waits for
// local-fs.target, precedes it only if the program can come from a system extension.
func applyAfter(prog Program) string {
	after := "systemd-modules-load.service systemd-sysctl.service"
	if !strings.HasPrefix(prog.path, "/usr/local/") {
		after += " systemd-sysext.service"
	}
	return after
}

func gateDropIn(g policy.Gate, prog Program) []byte {
	return render(prog.fileHeader()+"# Holds "+g.Unit+" until the node passes its policy. It uses ExecStartPre= instead of Requires= "+
		"because systemd never retries a failed required job.",
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

// startTimeout returns a start timeout longer than the gate's budget. The timeout also applies to
// the unit's own start. kubelet's start finishes at once (Type=simple), but k3s and rke2 wait for
// their datastore without a limit, so other units get no timeout: the gate ends by itself.
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
		if m.Applies() && !m.Absent {
			fmt.Fprintln(&b, m.Name)
		}
	}
	return []byte(b.String())
}

// modprobeConf returns the lines of modprobe.d for the options of modules, and for modules that must not load, or nil without any.
func modprobeConf(p *policy.Policy, prog Program) []byte {
	var lines []string
	for _, m := range p.Modules {
		if m.Applies() {
			lines = append(lines, m.ModprobeLines()...)
		}
	}
	if lines == nil {
		return nil
	}
	return []byte(prog.fileHeader() + strings.Join(lines, "\n") + "\n")
}

// sysctlConf returns the exact values of the policy in the format of sysctl.d, which cannot express a bound or a choice: a
// fixed value could lower a value that is higher for a good reason. A parameter that can stop the machine is left out too:
// the break-glass does not reach systemd-sysctl. The check sysctl.who-wins reads the comments about the
// parameters that are left out.
func sysctlConf(p *policy.Policy, prog Program) []byte {
	var b strings.Builder
	b.WriteString(prog.fileHeader())
	for _, s := range p.Sysctls {
		switch {
		case s.Off:
		case s.Value != "" && s.Unknown == "" && !s.CanStopMachine():
			fmt.Fprintf(&b, "%s = %s\n", s.Key, s.Value)
		default:
			fmt.Fprintf(&b, "# %s: %s; only `nodegate apply` sets it\n", s.Key, s.Want())
		}
	}
	return []byte(b.String())
}
