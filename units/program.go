package units

import (
	"crypto/sha256"
	"encoding/hex"

	"nodegate/host"
	"nodegate/policy"
)

// Where a package of the distribution puts things.
const (
	PackagedBinary  = "/usr/bin/nodegate"
	packagedUnitDir = "/usr/lib/systemd/system"
)

// Program is the nodegate that the units run, and who brings it.
type Program struct {
	path    string
	content []byte // to be written at path; none where a package brought it, with the units
}

// Copied is a program that the installation brings itself.
func Copied(binary []byte) Program { return Program{Binary, binary} }

// FindProgram is the package's program where that is below the root and is the
// same binary, else a copy of it: an installation depends on a package only if
// it would write the very same bytes again.
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
	if there.Type == host.File && there.Sum == hex.EncodeToString(sum[:]) && unit.Type == host.File {
		return Program{path: PackagedBinary}, nil
	}
	return Copied(binary), nil
}

func (p Program) unitDir() string {
	if p.content == nil {
		return packagedUnitDir
	}
	return unitDir
}

func (p Program) header() string {
	if p.content == nil {
		return "# Brought by the package; `nodegate install` enables it.\n"
	}
	return header
}

// ForPackage is the units as a package carries them: enabled by nobody, and
// good for every policy, because the drop-in that install writes says which unit
// waits.
func ForPackage() []File {
	return unitFiles(policy.Gate{Unit: "kubelet.service"}, Program{path: PackagedBinary})
}
