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

// apiVersions lists the versions of Cluster API's bootstrap configuration, newest first. Cluster API
// serves v1beta1 only up to 1.15. The fields that this package writes are the same in both.
func apiVersions() []string { return []string{"v1beta2", "v1beta1"} }

// maxContent limits a file in a KubeadmConfig, in characters; the limit comes from its schema.
const maxContent = 10240

// untilApplied waits for nodegate-apply, because kubeadm's preflight requires its settings. The wait
// is bounded: if apply fails, kubeadm reports the missing settings.
const untilApplied = `i=0; until systemctl is-active --quiet ` + units.ApplyUnit + ` || systemctl is-failed --quiet ` + units.ApplyUnit +
	` || [ $i -ge 120 ]; do i=$((i+1)); sleep 1; done; systemctl is-active --quiet ` + units.ApplyUnit +
	` || echo "nodegate: ` + units.ApplyUnit + ` has not succeeded after $i s; run: systemctl status 'nodegate-*'" >&2`

type kubeadmConfig struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		Files              []cloudFile
		PreKubeadmCommands []string `yaml:"preKubeadmCommands"`
	}
}

// needsBase64 reports whether a text would arrive changed on the node: Cluster API indents it into a
// YAML block, and treats the result as a Jinja template.
func needsBase64(text string) bool {
	changed := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) } // YAML 1.1 has more line ends than \n
	return strings.ContainsFunc(text, changed) || text != strings.TrimRight(strings.TrimLeft(text, " \t\n"), "\n")+"\n" ||
		slices.ContainsFunc([]string{"{{", "{%", "{#"}, func(opening string) bool { return strings.Contains(text, opening) })
}

// clusterAPI writes a bootstrap configuration that installs nodegate. kubeadm starts kubelet only
// after the commands have run, so nothing has to hold kubelet before that.
func clusterAPI(in Input) (Result, error) {
	n, err := in.buildNode("kubeadm")
	if err != nil {
		return Result{}, err
	}
	version := cmp.Or(in.APIVersion, apiVersions()[0])
	if !slices.Contains(apiVersions(), version) {
		return Result{}, fmt.Errorf("--api-version %q is unknown; known versions: %s", version, strings.Join(apiVersions(), ", "))
	}
	k := kubeadmConfig{APIVersion: "bootstrap.cluster.x-k8s.io/" + version, Kind: "KubeadmConfig"}
	k.Metadata.Name = "nodegate"
	k.Spec.Files = n.cloudFiles("root:root")
	for i := range k.Spec.Files {
		f := &k.Spec.Files[i]
		if needsBase64(f.Content) {
			f.Encoding, f.Content = "base64", base64.StdEncoding.EncodeToString([]byte(f.Content))
		}
		if size := utf8.RuneCountInString(f.Content); size > maxContent {
			return Result{}, fmt.Errorf("%s has %d characters, and Cluster API accepts at most %d: split it into several policy files", f.Path,
				size, maxContent)
		}
	}
	names := strings.Join(n.unitNames(), " ")
	k.Spec.PreKubeadmCommands = []string{"systemctl daemon-reload", "systemctl enable " + names, "systemctl start --no-block " + names,
		untilApplied}
	lacks := kubeletOnly(in)
	text, err := encodeYAML(k)
	comment := headComment("kubeadm", in, lacks,
		"For Cluster API: merge files and preKubeadmCommands into your KubeadmConfigTemplate (spec.template.spec)",
		"and KubeadmControlPlane (spec.kubeadmConfigSpec).")
	return Result{Text: append([]byte(comment), text...), Lacks: lacks}, err
}
