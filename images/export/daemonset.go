package export

import (
	_ "embed"
	"path"
	"strings"

	"nodegate/units"
)

//go:embed daemonset.yaml
var daemonSetManifest string

// daemonSet is a kustomize base. Its pod installs below the host's folders and
// asks the host's systemd to start the units; what stays is a container that
// does nothing.
func daemonSet(in Input) (Result, error) {
	comment := head("daemonset", in, nil)
	files, err := units.Files(in.Policy, in.Texts, units.DeliveredBy(units.Delivery{Name: command("daemonset")}))
	if err != nil {
		return Result{}, err
	}
	k := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: kube-system\n" +
		"resources:\n- daemonset.yaml\nconfigMapGenerator:\n- name: nodegate-policy\n  files:\n"
	var tree []units.File
	for _, f := range files {
		if path.Dir(f.Path) == units.PolicyDir {
			name := "policy.d/" + path.Base(f.Path)
			k += "  - " + name + "\n"
			tree = append(tree, units.File{Path: name, Mode: 0o644, Content: f.Content})
		}
	}
	manifest := strings.ReplaceAll(daemonSetManifest, "@IMAGE@", in.Delivery.Image)
	return Result{Tree: append(tree,
		units.File{Path: "daemonset.yaml", Mode: 0o644, Content: []byte(comment + manifest)},
		units.File{Path: "kustomization.yaml", Mode: 0o644, Content: []byte(comment + k)},
	)}, nil
}
