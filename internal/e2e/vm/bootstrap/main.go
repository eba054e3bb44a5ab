// Command bootstrap prints a script that does the work of a KubeadmConfig's files and preKubeadmCommands. The machine tests use it:
//
//	bootstrap KUBEADMCONFIG.yaml
package main

import (
	"encoding/base64"
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"
)

type config struct {
	Kind string
	Spec struct {
		Files []struct {
			Path, Owner, Permissions, Content string
		}
		PreKubeadmCommands []string `yaml:"preKubeadmCommands"`
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: bootstrap KUBEADMCONFIG.yaml")
		os.Exit(2)
	}
	text, err := os.ReadFile(os.Args[1])
	var c config
	if err == nil {
		err = yaml.Unmarshal(text, &c)
	}
	if err != nil || c.Kind != "KubeadmConfig" || len(c.Spec.Files) == 0 {
		fmt.Fprintln(os.Stderr, "bootstrap: no KubeadmConfig with files:", err)
		os.Exit(1)
	}
	for _, f := range c.Spec.Files {
		fmt.Printf("mkdir -p \"$(dirname %s)\"\necho %s | base64 -d >%s\nchown %s %s\nchmod %s %s\n", f.Path,
			base64.StdEncoding.EncodeToString([]byte(f.Content)), f.Path, f.Owner, f.Path, f.Permissions, f.Path)
	}
	for _, command := range c.Spec.PreKubeadmCommands {
		fmt.Println(command)
	}
}
