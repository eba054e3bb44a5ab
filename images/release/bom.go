package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// bom is a software bill of materials, CycloneDX 1.5, as far as a Go binary
// knows its own parts: https://cyclonedx.org/docs/1.5/json/.
type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
	DependsOn  []depends   `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Ref        string     `json:"bom-ref"`
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type depends struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

// boms writes a bill beside each binary.
func (r release) boms() error {
	for _, arch := range architectures() {
		b, err := r.bom(arch)
		if err != nil {
			return err
		}
		text, err := json.MarshalIndent(b, "", "  ")
		if err != nil {
			return err
		}
		if err := put(r.binary(arch)+".cdx.json", append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// bom lists what the linker put into the binary: the modules with the sums that
// go.sum has for them, and Go's own library.
func (r release) bom(arch string) (bom, error) {
	info, err := buildinfo.ReadFile(r.binary(arch))
	if err != nil {
		return bom{}, fmt.Errorf("reading the parts of %s: %w", r.binary(arch), err)
	}
	content, err := os.ReadFile(r.binary(arch))
	if err != nil {
		return bom{}, err
	}
	self := component{Type: "application", Name: "nodegate", Version: r.version,
		PURL:   "pkg:generic/nodegate@" + r.version + "?arch=" + arch,
		Hashes: []hash{{"SHA-256", sha256Of(content)}}}
	self.Ref = self.PURL
	std := component{Type: "library", Name: "std", Version: info.GoVersion, PURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion,
		"go")}
	std.Ref = std.PURL
	b := bom{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: metadata{r.time.Format("2006-01-02T15:04:05Z"), self},
		Components: []component{std}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version,
			Properties: []property{{"go.sum", m.Sum}}}
		c.Ref = c.PURL
		b.Components = append(b.Components, c)
	}
	all := depends{Ref: self.Ref}
	for _, c := range b.Components {
		all.On = append(all.On, c.Ref)
	}
	b.DependsOn = []depends{all}
	return b, nil
}

// thirdPartyLicenses is the license and notice files of all modules in the binary.
func thirdPartyLicenses(binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var all strings.Builder
	for _, m := range info.Deps {
		dir, err := moduleDir(m)
		if err != nil {
			return nil, err
		}
		before := all.Len()
		for _, pattern := range []string{"LICENSE*", "LICENCE*", "COPYING*", "NOTICE*"} {
			files, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil {
				return nil, err
			}
			for _, f := range files {
				text, err := os.ReadFile(f)
				if err != nil {
					return nil, err
				}
				fmt.Fprintf(&all, "%s %s, %s\n\n%s\n\n", m.Path, m.Version, filepath.Base(f), strings.TrimSpace(string(text)))
			}
		}
		if all.Len() == before {
			return nil, fmt.Errorf("%s %s has no license file", m.Path, m.Version)
		}
	}
	return []byte(all.String()), nil
}

func moduleDir(m *debug.Module) (string, error) {
	out, err := goList("-m", "-f", "{{.Dir}}", m.Path)
	if err == nil && out == "" {
		err = fmt.Errorf("the sources of %s are not downloaded", m.Path)
	}
	return out, err
}
