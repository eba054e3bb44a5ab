package units

import (
	"path"

	"nodegate/policy"
)

// BootUnit is the service without which systemd does not call a boot good (systemd.io/AUTOMATIC_BOOT_ASSESSMENT).
const BootUnit = "nodegate-boot-complete.service"

// FailedBoot is where the report of a boot that was not good lies, also in the next boot.
const FailedBoot = stateDir + "/failed-boot.json"

// AssessingBoot returns a program whose gate decides whether a boot was good.
func (p Program) AssessingBoot() Program {
	p.assess = true
	return p
}

// AssessesBoot reports whether the installation has a gate that decides whether a boot was good: an upgrade keeps it.
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

// bootUnit runs where something asks whether the boot was good: systemd-bless-boot where the boot loader counts, greenboot.
func bootUnit(g policy.Gate, prog Program) []byte {
	return render(prog.fileHeader()+"# Installed with --assess-boot: a boot is good only where the node passes its policy.",
		section("Unit",
			"Description", "Assess this boot by the Kubernetes node policy",
			"ConditionKernelCommandLine", "!nodegate=off",
			"ConditionPathExists", "!"+BreakGlassFile,
			"RequiresMountsFor", path.Dir(prog.path)+" /etc/nodegate "+stateDir,
			"After", ApplyUnit,
			"Before", "boot-complete.target",
		), section("Service",
			"Type", "oneshot",
			"RemainAfterExit", "yes",
			"ExecStart", prog.path+" gate --assess-boot"+prog.allow,
			"TimeoutStartSec", startTimeout(policy.Gate{Unit: "kubelet.service", Budget: g.Budget}),
		), section("Install",
			"RequiredBy", "boot-complete.target",
		))
}
