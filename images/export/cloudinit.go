package export

import (
	"fmt"
	"path"
	"strings"

	"nodegate/units"
)

type cloudConfig struct {
	BootCmd    [][]string  `yaml:"bootcmd"`
	WriteFiles []cloudFile `yaml:"write_files"`
	RunCmd     [][]string  `yaml:"runcmd,flow"`
}

// cloudFile is an entry of write_files in cloud-init and of files in a KubeadmConfig.
type cloudFile struct {
	Path        string
	Owner       string `yaml:",omitempty"`
	Permissions string
	Encoding    string `yaml:",omitempty"`
	Content     string
}

func cloudInit(in Input) (Result, error) {
	n, err := in.buildNode("cloud-init")
	if err != nil {
		return Result{}, err
	}
	c := cloudConfig{
		// bootcmd runs at every boot; cloud-init-per keeps an uninstalled nodegate from coming back.
		BootCmd:    [][]string{{"cloud-init-per", "instance", "nodegate-gate", "sh", "-c", firstBootCommand(n.dropIn)}},
		WriteFiles: n.cloudFiles(""),
		RunCmd: [][]string{
			{"systemctl", "daemon-reload"},
			append([]string{"systemctl", "enable"}, n.unitNames()...),
			append([]string{"systemctl", "start", "--no-block"}, n.unitNames()...),
		},
	}
	text, err := encodeYAML(c)
	comment := headComment("cloud-init", in, nil, "User data for an instance's first boot.")
	return Result{Text: append([]byte("#cloud-config\n"+comment), text...)}, err
}

// firstBootCommand returns the command that writes the gate before kubelet can start. On the first
// boot systemd has already read kubelet's unit, and write_files comes after bootcmd. So bootcmd
// writes the drop-in and reloads systemd, and write_files writes the same file again.
func firstBootCommand(dropIn units.File) string {
	return fmt.Sprintf("mkdir -p %s && printf %%s %s >%s && systemctl daemon-reload\n",
		shellWord(path.Dir(dropIn.Path)), shellWord(string(dropIn.Content)), shellWord(dropIn.Path))
}

func (n node) cloudFiles(owner string) []cloudFile {
	var all []cloudFile
	for _, u := range n.units {
		all = append(all, cloudFile{Path: systemDir + u.name, Owner: owner, Permissions: "0644", Content: u.text})
	}
	for _, f := range n.files {
		all = append(all, cloudFile{Path: f.Path, Owner: owner, Permissions: fmt.Sprintf("%04o", f.Mode), Content: string(f.Content)})
	}
	return all
}

// shellWord quotes a string for sh.
func shellWord(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
