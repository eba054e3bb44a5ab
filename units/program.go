package units

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"

	"nodegate/internal/host/tree"
	"nodegate/policy"
)

// Paths in a package of the distribution.
const (
	PackagedBinary  = "/usr/bin/nodegate"
	packagedUnitDir = "/usr/lib/systemd/system"
)

// Program is the nodegate binary that the units run, and the way it is installed.
type Program struct {
	path    string
	content []byte // written to path; nil if a package provides the binary and the units
	carrier Delivery
	allow   string // additional arguments of gate, apply and watch
}

// AllowingWritable returns the program with gate, apply and watch accepting a policy that users other than root may write.
func (p Program) AllowingWritable() Program {
	p.allow = " --allow-writable"
	return p
}

// Delivery describes a way other than install to put nodegate's files on a machine: a cluster's
// manifest, cloud-init, an image's configuration.
type Delivery struct {
	Name string // the command that writes the files, for their headers: "nodegate export kops"
	Path string // of the program; "" means Binary
	Gate string // the command that delays the unit; "" means the program's gate
}

// DeliveredBy returns a program that the delivery puts on the machine: it is not among the files.
func DeliveredBy(c Delivery) Program { return Program{path: cmp.Or(c.Path, Binary), carrier: c} }

// Copied returns a program that the installation writes to Binary.
func Copied(binary []byte) Program { return Program{path: Binary, content: binary} }

// FindProgram returns the package's program if it exists below the root and is the same binary,
// otherwise a copy of the binary. An installation depends on a package only if it would write
// exactly the same bytes again.
func FindProgram(t Tree, binary []byte) (Program, error) {
	there, err := t.Stat(PackagedBinary)
	if err != nil {
		return Program{}, err
	}
	unit, err := t.Stat(packagedUnitDir + "/" + ApplyUnit)
	if err != nil {
		return Program{}, err
	}
	sum := sha256.Sum256(binary)
	if there.Type == tree.File && there.Sum == hex.EncodeToString(sum[:]) && unit.Type == tree.File {
		return Program{path: PackagedBinary}, nil
	}
	return Copied(binary), nil
}

// bringsUnits reports whether the installation writes the units, instead of a package.
func (p Program) bringsUnits() bool { return p.content != nil || p.carrier.Name != "" }

// gateCommand returns the command that holds the unit. The program itself honours the break-glass. The shell does so if the program is
// missing or does not run, which would otherwise hold the unit with no way to open it: systemd reports only 203/EXEC.
func (p Program) gateCommand() string {
	if p.carrier.Gate != "" {
		return p.carrier.Gate
	}
	return `/bin/sh -c 'off=; read -r line </proc/cmdline; case "$$line" in *nodegate=off*) ` +
		`if xargs -n1 </proc/cmdline | grep -qxF nodegate=off; then off="nodegate=off on the kernel command line"; fi;; esac; ` +
		`if [ -e ` + BreakGlassFile + ` ]; then off=` + BreakGlassFile + `; fi; ` +
		`if [ -n "$$off" ] && ! ` + p.path + ` version >/dev/null 2>&1; then say="break-glass in force ($$off): this node is NOT proven"; ` +
		`elif [ -x ` + p.path + ` ]; then exec ` + p.path + ` gate` + p.allow + `; ` +
		`else say="%n held: ` + p.path + ` is missing; put it there, or open with: touch ` + BreakGlassFile + `"; fi; ` +
		`echo "nodegate: $$say" >&2; echo "nodegate: $$say" >/dev/console; [ -n "$$off" ]'`
}

func (p Program) unitDir() string {
	if !p.bringsUnits() {
		return packagedUnitDir
	}
	return unitDir
}

// unitHeader returns the first line of a unit that a package may provide.
func (p Program) unitHeader() string {
	if !p.bringsUnits() {
		return "# Provided by the package; `nodegate install` enables it.\n"
	}
	return p.fileHeader()
}

// fileHeader returns the first line of every other file.
func (p Program) fileHeader() string {
	if p.carrier.Name != "" {
		return "# Written by `" + p.carrier.Name + "`: change the policy, not this file.\n"
	}
	return headerStart + "; `nodegate uninstall` removes it.\n"
}

// ForPackage returns the units for a package. They are not enabled, and suit every policy, because
// the drop-in that install writes selects the unit that waits.
func ForPackage() []File {
	return unitFiles(policy.Gate{Unit: "kubelet.service"}, Program{path: PackagedBinary})
}
