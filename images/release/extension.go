package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"nodegate/units"
)

// extensions makes a system extension (systemd-sysext) for each architecture, for hosts with a read-only /usr. It contains only the
// program. The units and the policy are in /etc and survive an update of the extension.
func (r release) extensions() error {
	if _, err := exec.LookPath("mksquashfs"); err != nil {
		fmt.Println("no system extensions: mksquashfs of squashfs-tools is not here")
		return nil
	}
	for _, arch := range architectures() {
		name := fmt.Sprintf("nodegate-%s-%s.raw", strings.TrimPrefix(r.version, "v"), arch)
		if err := r.extension(r.binary(arch), arch, filepath.Join(r.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// extension writes one extension. Its name on the host must be nodegate.raw, because systemd compares the name with its release file.
func (r release) extension(program, arch, file string) error {
	binary, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	stage := filepath.Join(r.work, "extension-"+arch)
	if err := put(stage+units.PackagedBinary, binary, 0o755); err != nil {
		return err
	}
	about := "ID=_any\nARCHITECTURE=" + map[string]string{"amd64": "x86-64", "arm64": "arm64"}[arch] + "\n"
	if err := put(stage+"/usr/lib/extension-release.d/extension-release.nodegate", []byte(about), 0o644); err != nil {
		return err
	}
	cmd := exec.Command("mksquashfs", stage, file, "-noappend", "-all-root", "-no-xattrs", "-no-progress", "-quiet", "-comp", "xz",
		"-processors", "1")
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.time.Unix()))
	return command(cmd)
}
