package export

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"

	"nodegate/units"
)

// ignitionVersion is the newest spec that every Ignition since 2.13 (2022) reads.
const ignitionVersion = "3.3.0"

type ignitionConfig struct {
	Variant  string            `json:"-" yaml:",omitempty"` // Butane only
	Version  string            `json:"-" yaml:",omitempty"` // Butane only
	Ignition *ignitionMetadata `json:"ignition,omitempty" yaml:"-"`
	Storage  ignitionStorage   `json:"storage"`
	Systemd  ignitionServices  `json:"systemd"`
}

type ignitionMetadata struct {
	Version string `json:"version"`
}

type ignitionStorage struct {
	Files []ignitionFile `json:"files"`
}

type ignitionFile struct {
	Path      string           `json:"path"`
	Mode      octal            `json:"mode"`
	Overwrite bool             `json:"overwrite"`
	Contents  ignitionContents `json:"contents"`
}

type ignitionContents struct {
	Inline       string       `json:"-" yaml:",omitempty"` // Butane only
	Source       string       `json:"source" yaml:",omitempty"`
	Verification ignitionHash `json:"verification" yaml:",omitempty"`
}

type ignitionHash struct {
	Hash string `json:"hash,omitempty"`
}

type ignitionServices struct {
	Units []ignitionUnit `json:"units"`
}

type ignitionUnit struct {
	Name     string `json:"name"`
	Enabled  bool   `json:"enabled"`
	Contents string `json:"contents,omitempty" yaml:",omitempty"`
}

// octal is a file mode; people expect it in octal in Butane.
type octal uint32

func (o octal) MarshalYAML() (any, error) {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: fmt.Sprintf("%#o", uint32(o))}, nil
}

// buildIgnition returns the configuration that both formats share. Ignition writes every file before
// systemd starts, so there is no race. It fetches and verifies a URL itself.
func (in Input) buildIgnition(format string) (ignitionConfig, error) {
	var c ignitionConfig
	if d := in.Delivery; d.URL != "" {
		file := ignitionFile{Path: d.path(), Mode: 0o755, Overwrite: true,
			Contents: ignitionContents{Source: d.URL, Verification: ignitionHash{"sha256-" + d.SHA256}}}
		if d.isExtension() {
			d.Path = cmp.Or(d.Path, units.PackagedBinary)
			file.Path, file.Mode = extensionFile, 0o644
			c.Systemd.Units = append(c.Systemd.Units, ignitionUnit{Name: "systemd-sysext.service", Enabled: true})
		}
		c.Storage.Files = append(c.Storage.Files, file)
		in.Delivery = Delivery{Path: d.Path}
	}
	n, err := in.buildNode(format)
	for _, f := range n.files {
		c.Storage.Files = append(c.Storage.Files, ignitionFile{Path: f.Path, Mode: octal(f.Mode), Overwrite: true,
			Contents: ignitionContents{Inline: string(f.Content)}})
	}
	for _, u := range n.units {
		c.Systemd.Units = append(c.Systemd.Units, ignitionUnit{u.name, true, u.text})
	}
	return c, err
}

// butane writes the same configuration as Butane YAML: variant fcos 1.4.0 corresponds to spec 3.3.0.
func butane(in Input) (Result, error) {
	c, err := in.buildIgnition("butane")
	if err != nil {
		return Result{}, err
	}
	c.Variant, c.Version = "fcos", "1.4.0"
	text, err := encodeYAML(c)
	return Result{Text: append([]byte(headComment("butane", in, nil)), text...)}, err
}

func ignition(in Input) (Result, error) {
	c, err := in.buildIgnition("ignition")
	if err != nil {
		return Result{}, err
	}
	c.Ignition = &ignitionMetadata{ignitionVersion}
	for i := range c.Storage.Files {
		if contents := &c.Storage.Files[i].Contents; contents.Source == "" {
			contents.Source = "data:;base64," + base64.StdEncoding.EncodeToString([]byte(contents.Inline))
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	err = e.Encode(c)
	return Result{Text: b.Bytes()}, err
}
