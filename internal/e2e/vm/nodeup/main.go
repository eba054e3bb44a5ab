// Command nodeup splits the output of `nodegate export kops`, with types like kops' own. The machine tests use it with a shell
// script that stands in for nodeup:
//
//	nodeup EXPORT.yaml DIR
//
// It writes to DIR: hooks/N/{name,manifest}, assets/N/{path,mode,content} and sysctls.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

type manifest struct {
	Spec struct {
		Hooks []struct {
			Name           string
			Roles          []string
			UseRawManifest bool `yaml:"useRawManifest"`
			Manifest       string
		}
		FileAssets []struct {
			Name, Path, Content, Mode string
			Roles                     []string
		} `yaml:"fileAssets"`
		SysctlParameters []string `yaml:"sysctlParameters"`
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: nodeup EXPORT.yaml DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "nodeup:", err)
		os.Exit(1)
	}
}

func run(file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true) // as strict as kops
	var m manifest
	if err := d.Decode(&m); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	files := map[string]string{"sysctls": strings.Join(m.Spec.SysctlParameters, "\n") + "\n"}
	for i, h := range m.Spec.Hooks {
		if !h.UseRawManifest || len(h.Roles) == 0 {
			return fmt.Errorf("this stand-in does not support the hook %s: %+v", h.Name, h)
		}
		at := fmt.Sprintf("hooks/%02d/", i)
		files[at+"name"], files[at+"manifest"] = h.Name+"\n", h.Manifest
	}
	for i, a := range m.Spec.FileAssets {
		if a.Mode == "" {
			a.Mode = "0440"
		}
		at := fmt.Sprintf("assets/%02d/", i)
		files[at+"path"], files[at+"mode"], files[at+"content"] = a.Path+"\n", a.Mode+"\n", a.Content
	}
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
