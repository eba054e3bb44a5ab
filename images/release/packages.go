package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"nodegate/units"
)

// nfpm is the last version whose modules are all available on the Go module proxies. Later versions need a writer of another format
// that some proxies lack.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"

// packages makes a .deb and an .rpm for each architecture.
func (r release) packages() error { return r.packagesOf([]string{"deb", "rpm"}, architectures()...) }

func (r release) packagesOf(formats []string, architectures ...string) error {
	changelog := filepath.Join(r.work, "changelog.Debian.gz")
	if err := r.debianChangelog(changelog); err != nil {
		return err
	}
	completions := filepath.Join(r.work, "completions")
	if err := writeCompletions(completions); err != nil {
		return err
	}
	for _, arch := range architectures {
		stage := filepath.Join(r.work, "package-"+arch)
		if err := r.stage(stage, arch, completions); err != nil {
			return err
		}
		for _, format := range formats {
			cmd := exec.Command("go", "run", nfpm, "package", "--config", "images/package/nfpm.yaml", "--packager", format, "--target", r.dir)
			cmd.Env = append(os.Environ(), "GOFLAGS=", "NFPM_ARCH="+arch, "NFPM_VERSION="+packageVersion(r.version), "NFPM_STAGE="+stage,
				"NFPM_COMPLETIONS="+completions, "NFPM_CHANGELOG="+changelog, "NFPM_MAINTAINER="+maintainer,
				fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.time.Unix()))
			if err := command(cmd); err != nil {
				return err
			}
		}
	}
	return nil
}

// packageVersion returns the version in a form that dpkg and rpm can compare: it begins with a digit and contains no dash. v1.2.3
// becomes 1.2.3, and five commits later 1.2.3+5.gabcdef0. A commit without an earlier tag sorts before every release.
func packageVersion(v string) string {
	v = strings.ReplaceAll(strings.TrimPrefix(v, "v"), "-", "+")
	if !regexp.MustCompile(`^[0-9]+\.`).MatchString(v) {
		v = "0~" + v
	}
	return v
}

// maintainer is the maintainer named in the packages. The project does not have an address yet.
const maintainer = "The nodegate authors <nodegate@nodegate.invalid>"

// debianChangelog writes the changelog of the package; the program's changelog lies beside it.
func (r release) debianChangelog(name string) error {
	text := fmt.Sprintf("nodegate (%s-1) unstable; urgency=medium\n\n  * Made of %s; changelog.gz says what is new.\n\n -- %s  %s\n",
		packageVersion(r.version), r.version, maintainer, r.time.Format(time.RFC1123Z))
	packed, err := pack([]byte(text))
	if err != nil {
		return err
	}
	return put(name, packed, 0o644)
}

// stage lays out the files of the package as they will lie below /.
func (r release) stage(dir, arch, completions string) error {
	binary, err := os.ReadFile(r.binary(arch))
	if err != nil {
		return err
	}
	if err := put(dir+units.PackagedBinary, binary, 0o755); err != nil {
		return err
	}
	for _, u := range units.ForPackage() {
		if err := put(dir+u.Path, u.Content, u.Mode); err != nil {
			return err
		}
	}
	if err := r.manual(dir + "/usr/share/man"); err != nil {
		return err
	}
	licenses, err := thirdPartyLicenses(r.binary(arch))
	if err != nil {
		return err
	}
	if licenses, err = pack(licenses); err != nil {
		return err
	}
	changes, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	if changes, err = pack(changes); err != nil {
		return err
	}
	for name, content := range map[string][]byte{"third-party-licenses.gz": licenses, "changelog.gz": changes} {
		if err := put(dir+"/usr/share/doc/nodegate/"+name, content, 0o644); err != nil {
			return err
		}
	}
	for from, to := range map[string]string{
		"images/package/copyright":     "/usr/share/doc/nodegate/copyright",
		completions + "/nodegate.bash": "/usr/share/bash-completion/completions/nodegate",
		completions + "/nodegate.fish": "/usr/share/fish/vendor_completions.d/nodegate.fish",
	} {
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := put(dir+to, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// manual writes the manual pages with the time and version of the release.
func (r release) manual(dir string) error {
	pages, err := filepath.Glob("docs/man/*")
	if err != nil {
		return err
	}
	if len(pages) == 0 {
		return fmt.Errorf("no pages in docs/man")
	}
	for _, file := range pages {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		title := fmt.Sprintf(`"%s" "nodegate %s"`, r.time.Format("2006-01-02"), strings.TrimPrefix(r.version, "v"))
		filled := strings.Replace(string(text), `"DATE" "nodegate VERSION"`, title, 1)
		packed, err := pack([]byte(filled))
		if err != nil {
			return err
		}
		section := strings.TrimPrefix(filepath.Ext(file), ".")
		if err := put(filepath.Join(dir, "man"+section, filepath.Base(file)+".gz"), packed, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeCompletions runs the program, built for the build machine, to print its completions.
func writeCompletions(dir string) error {
	for shell, name := range map[string]string{"bash": "nodegate.bash", "zsh": "_nodegate", "fish": "nodegate.fish"} {
		text, err := exec.Command("go", "run", "./cmd/nodegate", "completion", shell).Output()
		if err != nil {
			return fmt.Errorf("writing the completion for %s: %w", shell, err)
		}
		if err := put(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
