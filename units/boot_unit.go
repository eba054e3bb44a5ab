package units

import (
	"path"
	"slices"

	"nodegate/policy"
)

// BootUnit is a service that must succeed before systemd counts a boot as good (systemd.io/AUTOMATIC_BOOT_ASSESSMENT).
const BootUnit = "nodegate-boot-complete.service"

// FailedBoot is the file with the report of the last bad boot. It survives the reboot.
const FailedBoot = stateDir + "/failed-boot.json"

// AssessingBoot returns the program with a gate that also decides whether a boot was good.
func (p Program) AssessingBoot() Program {
	p.assess = true
	return p
}

// AssessesBoot reports whether the gate of the current installation decides whether a boot was good. An upgrade keeps it.
func AssessesBoot(t Tree) (bool, error) {
	j, err := readJournal(t)
	return err == nil && j.find(unitDir+"/"+BootUnit) != nil, err
}

func bootFiles(g policy.Gate, prog Program) []File {
	if !prog.assess {
		return nil
	}
	return []File{
		{Path: unitDir + "/" + BootUnit, Mode: 0o644, Content: bootUnit(g, prog)},
		{Path: unitDir + "/boot-complete.target.requires/" + BootUnit, Target: unitDir + "/" + BootUnit},
	}
}

// bootUnit returns the content of BootUnit. It runs if a program assesses the boot: systemd-bless-boot if the boot loader
// counts attempts, or greenboot.
func bootUnit(g policy.Gate, prog Program) []byte {
	return render(prog.fileHeader()+"# Installed with --assess-boot: a boot is good only if the node passes its policy.",
		section("Unit",
			"Description", "Assess this boot by the Kubernetes node policy",
			"ConditionKernelCommandLine", "!nodegate=off",
			"ConditionPathExists", "!"+BreakGlassFile,
			"RequiresMountsFor", path.Dir(prog.path)+" /etc/nodegate "+stateDir,
			"After", ApplyUnit,
			"Before", "boot-complete.target",
		), section("Service", slices.Concat([]string{
			"Type", "oneshot",
			"RemainAfterExit", "yes",
			"ExecStart", prog.path + " gate --assess-boot" + prog.allow,
			"TimeoutStartSec", startTimeout(policy.Gate{Unit: "kubelet.service", Budget: g.Budget}),
			// The unit changes nothing, but its checks must see what the gate of kubelet sees, or a good boot would be given
			// up: files and sockets of any user, the processes that hold a port, the machine's mounts. CAP_SYS_ADMIN, a low port, the
			// network namespace and AF_PACKET are for a probe block; CAP_SYS_BOOT is for the restart, which systemd carries out.
			"CapabilityBoundingSet", "CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_NET_ADMIN CAP_NET_BIND_SERVICE " +
				"CAP_NET_RAW CAP_SYS_ADMIN CAP_SYS_BOOT CAP_SYS_PTRACE",
			"RestrictAddressFamilies", "AF_UNIX AF_NETLINK AF_INET AF_INET6 AF_PACKET",
			"RestrictNamespaces", "net",
		}, restrictions(" @module"))...), section("Install",
			"RequiredBy", "boot-complete.target",
		))
}
