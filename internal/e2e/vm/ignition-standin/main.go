// Command ignite writes the files and units of an Ignition configuration below a root, as Ignition does before the first boot. The
// machine tests use it:
//
//	ignite CONFIG.ign ROOT
package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

type config struct {
	Storage struct {
		Files []struct {
			Path     string
			Mode     uint32
			Contents struct{ Source string }
		}
	}
	Systemd struct {
		Units []struct {
			Name, Contents string
			Enabled        bool
		}
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: ignite CONFIG.ign ROOT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "ignite:", err)
		os.Exit(1)
	}
}

func run(file, root string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var c config
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	for _, f := range c.Storage.Files {
		data, ok := strings.CutPrefix(f.Contents.Source, "data:;base64,")
		content, err := base64.StdEncoding.DecodeString(data)
		if !ok || err != nil {
			return fmt.Errorf("%s: this stand-in does not support the source: %v", f.Path, err)
		}
		if err := write(filepath.Join(root, f.Path), content, os.FileMode(f.Mode)); err != nil {
			return err
		}
	}
	for _, u := range c.Systemd.Units {
		if err := write(filepath.Join(root, "etc/systemd/system", u.Name), []byte(u.Contents), 0o644); err != nil {
			return err
		}
		wants := filepath.Join(root, "etc/systemd/system/multi-user.target.wants", u.Name)
		if err := os.MkdirAll(filepath.Dir(wants), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("/etc/systemd/system/"+u.Name, wants); u.Enabled && err != nil {
			return err
		}
	}
	return nil
}

func write(name string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(name, content, mode); err != nil {
		return err
	}
	return os.Chmod(name, mode)
}
