package units

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"

	"nodegate/internal/host/tree"
	"nodegate/policy"
)

// Where a package of the distribution puts things.
const (
	PackagedBinary  = "/usr/bin/nodegate"
	packagedUnitDir = "/usr/lib/systemd/system"
)

// Program is the nodegate that the units run, and who provides it.
type Program struct {
	path    string
	content []byte // to be written at path; nil where a package provides it, with the units
	carrier Delivery
	assess  bool   // a unit judges the boot
	allow   string // what gate, apply and watch get on their command lines
}

// AllowingWritable returns a program whose gate, apply and watch use a policy that others than root may write.
func (p Program) AllowingWritable() Program {
	p.allow = " --allow-writable"
	return p
}

// Delivery is anything other than install that puts nodegate's files onto a machine:
// a cluster's manifest, cloud-init, an image's configuration.
type Delivery struct {
	Name string // the command that wrote them, for their heads: "nodegate export kops"
	Path string // of the program; "" is Binary
	Gate string // the command that delays the unit; "" is the program's gate
}

// DeliveredBy returns a program that comes to its place by another way than these
// files.
func DeliveredBy(c Delivery) Program { return Program{path: cmp.Or(c.Path, Binary), carrier: c} }

// Copied returns a program that the installation provides itself.
func Copied(binary []byte) Program { return Program{path: Binary, content: binary} }

// FindProgram returns the package's program where that is below the root and is the
// same binary, else a copy of it: an installation depends on a package only if it
// would write the very same bytes again.
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

// bringsUnits reports whether the units are among the files.
func (p Program) bringsUnits() bool { return p.content != nil || p.carrier.Name != "" }

func (p Program) gateCommand() string {
	if p.carrier.Gate != "" {
		return p.carrier.Gate
	}
	return p.path + " gate" + p.allow
}

func (p Program) unitDir() string {
	if !p.bringsUnits() {
		return packagedUnitDir
	}
	return unitDir
}

// header returns the first line of a unit, head that of every other file.
func (p Program) unitHeader() string {
	if !p.bringsUnits() {
		return "# Brought by the package; `nodegate install` enables it.\n"
	}
	return p.fileHeader()
}

func (p Program) fileHeader() string {
	if p.carrier.Name != "" {
		return "# Written by `" + p.carrier.Name + "`: change the policy, not this file.\n"
	}
	return headerStart + "; `nodegate uninstall` removes it.\n"
}

// ForPackage returns the units as a package carries them: not enabled, and good for
// every policy, because the drop-in that install writes says which unit waits.
func ForPackage() []File {
	return unitFiles(policy.Gate{Unit: "kubelet.service"}, Program{path: PackagedBinary})
}
