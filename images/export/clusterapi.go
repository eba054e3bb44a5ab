package export

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"nodegate/units"
)

// apiVersions are those of Cluster API's bootstrap configuration, the newest first.
// Cluster API serves v1beta1 up to 1.15 only. What is written here is the same in both.
func apiVersions() []string { return []string{"v1beta2", "v1beta1"} }

// maxContent is the most characters of a file in a KubeadmConfig, by its schema.
const maxContent = 10240

// untilApplied waits for nodegate-apply, whose settings kubeadm's preflight asks for. It
// ends: where the node cannot be made right, kubeadm says what it misses.
const untilApplied = `i=0; until systemctl is-active --quiet ` + units.ApplyUnit + ` || systemctl is-failed --quiet ` + units.ApplyUnit +
	` || [ $i -ge 120 ]; do i=$((i+1)); sleep 1; done; systemctl is-active --quiet ` + units.ApplyUnit +
	` || echo "nodegate: ` + units.ApplyUnit + ` has not succeeded after $i s; see: systemctl status 'nodegate-*'" >&2`

type kubeadmConfig struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		Files              []cloudFile
		PreKubeadmCommands []string `yaml:"preKubeadmCommands"`
	}
}

// templated reports whether a text would not be itself on the node: Cluster API indents it into a YAML block, and makes a
// Jinja template of the whole.
func templated(text string) bool {
	changed := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) } // line ends of YAML 1.1, among others
	return strings.ContainsFunc(text, changed) || text != strings.TrimRight(strings.TrimLeft(text, " \t\n"), "\n")+"\n" ||
		slices.ContainsFunc([]string{"{{", "{%", "{#"}, func(sign string) bool { return strings.Contains(text, sign) })
}

// clusterAPI is a bootstrap configuration that brings nodegate. kubeadm starts
// kubelet after the commands have run: nothing need be held before.
func clusterAPI(in Input) (Result, error) {
	n, err := in.node("kubeadm")
	if err != nil {
		return Result{}, err
	}
	version := cmp.Or(in.APIVersion, apiVersions()[0])
	if !slices.Contains(apiVersions(), version) {
		return Result{}, fmt.Errorf("--api-version %q: there is %s", version, strings.Join(apiVersions(), ", "))
	}
	k := kubeadmConfig{APIVersion: "bootstrap.cluster.x-k8s.io/" + version, Kind: "KubeadmConfig"}
	k.Metadata.Name = "nodegate"
	k.Spec.Files = n.cloudFiles("root:root")
	for i := range k.Spec.Files {
		f := &k.Spec.Files[i]
		if templated(f.Content) {
			f.Encoding, f.Content = "base64", base64.StdEncoding.EncodeToString([]byte(f.Content))
		}
		if size := utf8.RuneCountInString(f.Content); size > maxContent {
			return Result{}, fmt.Errorf("%s has %d characters, and Cluster API takes %d at most: split it into several policy files", f.Path,
				size, maxContent)
		}
	}
	names := strings.Join(n.enabled(), " ")
	k.Spec.PreKubeadmCommands = []string{"systemctl daemon-reload", "systemctl enable " + names, "systemctl start --no-block " + names,
		untilApplied}
	lacks := kubeletOnly(in)
	text, err := encodeYAML(k)
	comment := head("kubeadm", in, lacks,
		"For Cluster API: merge files and preKubeadmCommands into your KubeadmConfigTemplate (spec.template.spec)",
		"and KubeadmControlPlane (spec.kubeadmConfigSpec).")
	return Result{Text: append([]byte(comment), text...), Lacks: lacks}, err
}
