package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// bom is a software bill of materials in CycloneDX 1.5, with the parts that a Go binary records about itself:
// https://cyclonedx.org/docs/1.5/json/. cyclonedx-gomod 1.9 would write it in fewer lines, but not twice the same: it adds the time of
// the call and its own hashes. It also takes the license of golang.org/x for BSD-Source-Code, and misses one of go.yaml.in/yaml's two.
type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Serial     string      `json:"serialNumber"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
	DependsOn  []depends   `json:"dependencies"`
}

type metadata struct {
	Timestamp string       `json:"timestamp"`
	Tools     tools        `json:"tools"`
	Component component    `json:"component"`
	Supplier  organization `json:"supplier"`
}

type tools struct {
	Components []component `json:"components"`
}

type organization struct {
	Name string `json:"name"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type component struct {
	Ref        string        `json:"bom-ref"`
	Type       string        `json:"type"`
	Supplier   *organization `json:"supplier,omitempty"`
	Name       string        `json:"name"`
	Version    string        `json:"version"`
	Hashes     []hash        `json:"hashes,omitempty"`
	Licenses   []license     `json:"licenses,omitempty"`
	PURL       string        `json:"purl,omitempty"`
	Properties []property    `json:"properties,omitempty"`
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

// boms writes a bill of materials beside each binary.
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

// bom lists the parts that the linker put into the binary: the modules with their sums from go.sum, and Go's own library.
func (r release) bom(arch string) (bom, error) {
	info, err := buildinfo.ReadFile(r.binary(arch))
	if err != nil {
		return bom{}, fmt.Errorf("reading the parts of %s: %w", r.binary(arch), err)
	}
	content, err := os.ReadFile(r.binary(arch))
	if err != nil {
		return bom{}, err
	}
	authors, sum := organization{"The nodegate authors"}, sha256Of(content)
	self := component{Type: "application", Supplier: &authors, Name: "nodegate", Version: r.version,
		PURL:   "pkg:generic/nodegate@" + r.version + "?arch=" + arch,
		Hashes: []hash{{"SHA-256", sum}}, Licenses: licensesOf("Apache-2.0")}
	self.Ref = self.PURL
	std := component{Type: "library", Name: "std", Version: info.GoVersion, PURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion,
		"go"), Licenses: licensesOf("BSD-3-Clause")}
	std.Ref = std.PURL
	maker := component{Ref: "make-dist", Type: "application", Name: "nodegate make dist", Version: r.version}
	b := bom{Format: "CycloneDX", Spec: "1.5", Serial: uuid(sum), Version: 1,
		Metadata:   metadata{r.time.Format("2006-01-02T15:04:05Z"), tools{[]component{maker}}, self, authors},
		Components: []component{std}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		texts, err := licenseTexts(m)
		if err != nil {
			return bom{}, err
		}
		ids, err := recognize(m, texts)
		if err != nil {
			return bom{}, err
		}
		c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version,
			Licenses: licensesOf(ids...), Properties: []property{{"go.sum", m.Sum}}}
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

// uuid returns a serial number derived from the binary's checksum: a UUID of version 8.
func uuid(sum string) string {
	return "urn:uuid:" + sum[:8] + "-" + sum[8:12] + "-8" + sum[13:16] + "-8" + sum[17:20] + "-" + sum[20:32]
}
