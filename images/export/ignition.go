package export

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"

	"nodegate/units"
)

// ignitionVersion is the newest spec that every Ignition since 2.13 (2022) reads.
const ignitionVersion = "3.3.0"

type ignitionConfig struct {
	Ignition ignitionMetadata `json:"ignition"`
	Storage  ignitionStorage  `json:"storage"`
	Systemd  ignitionServices `json:"systemd"`
}

type ignitionMetadata struct {
	Version string `json:"version"`
}

type ignitionStorage struct {
	Files []ignitionFile `json:"files"`
}

type ignitionFile struct {
	Path      string           `json:"path"`
	Mode      uint32           `json:"mode"`
	Overwrite bool             `json:"overwrite"`
	Contents  ignitionContents `json:"contents"`
}

type ignitionContents struct {
	Source       string       `json:"source"`
	Verification ignitionHash `json:"verification"`
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
	Contents string `json:"contents,omitempty"`
}

// ignition writes a configuration for Ignition, which writes every file before systemd starts, so there is no race. It fetches and
// verifies a URL itself.
func ignition(in Input) (Result, error) {
	c := ignitionConfig{Ignition: ignitionMetadata{ignitionVersion}}
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
	n, err := in.buildNode("ignition")
	if err != nil {
		return Result{}, err
	}
	for _, f := range n.files {
		c.Storage.Files = append(c.Storage.Files, ignitionFile{Path: f.Path, Mode: uint32(f.Mode), Overwrite: true,
			Contents: ignitionContents{Source: "data:;base64," + base64.StdEncoding.EncodeToString(f.Content)}})
	}
	for _, u := range n.units {
		c.Systemd.Units = append(c.Systemd.Units, ignitionUnit{u.name, true, u.text})
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	err = e.Encode(c)
	return Result{Text: b.Bytes()}, err
}
