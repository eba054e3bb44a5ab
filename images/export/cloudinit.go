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

// cloudFile is an entry of cloud-init's write_files, and of KubeadmConfig's files.
type cloudFile struct {
	Path        string
	Owner       string `yaml:",omitempty"`
	Permissions string
	Encoding    string `yaml:",omitempty"`
	Content     string
}

func cloudInit(in Input) (Result, error) {
	n, err := in.node("cloud-init")
	if err != nil {
		return Result{}, err
	}
	c := cloudConfig{
		// bootcmd runs at every boot; a node that somebody has cleaned stays clean.
		BootCmd:    [][]string{{"cloud-init-per", "instance", "nodegate-gate", "sh", "-c", firstBoot(n.dropIn)}},
		WriteFiles: n.cloudFiles(""),
		RunCmd: [][]string{
			{"systemctl", "daemon-reload"},
			append([]string{"systemctl", "enable"}, n.enabled()...),
			append([]string{"systemctl", "start", "--no-block"}, n.enabled()...),
		},
	}
	text, err := encodeYAML(c)
	comment := head("cloud-init", in, nil, "User data for an instance's first boot.")
	return Result{Text: append([]byte("#cloud-config\n"+comment), text...)}, err
}

// firstBoot puts the gate there before kubelet can start. On the first boot
// systemd has read kubelet's unit already, and cloud-init writes files after the
// one moment at which it runs commands this early: hence the same file twice.
func firstBoot(dropIn units.File) string {
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

// shellWord quotes a text for sh.
func shellWord(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
