package export

import (
	_ "embed"
	"fmt"
	"path"
	"strings"

	"nodegate/policy"
	"nodegate/units"
)

//go:embed daemonset.yaml
var daemonSetManifest string

//go:embed own_node.yaml
var ownNode string

// publisherPart gives the long-running container access to the report of watch and to a service
// account's token. The init container does not get the token.
const publisherPart = `        env:
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        volumeMounts:
        - {name: run, mountPath: /run/nodegate, readOnly: true}
        - {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
`

const publisherVolumes = `      - {name: run, hostPath: {path: /run/nodegate, type: DirectoryOrCreate}}
      - name: token
        projected:
          sources:
          - serviceAccountToken: {path: token, expirationSeconds: 3600}
          - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
`

// publisherRBAC grants the rights that publishing needs. Events about Nodes are in the namespace default.
//
//go:embed readiness/rbac.yaml
var publisherRBAC string

// configMapKey reports whether the API server accepts a name as a key of a ConfigMap (IsConfigMapKey in
// k8s.io/apimachinery).
func configMapKey(name string) bool {
	return len(name) <= 253 && !strings.ContainsFunc(name, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune("-_.", r)
	})
}

// daemonSet writes a kustomize base. Its Pod installs nodegate into the host's directories and makes
// the host's systemd start the units. Afterwards one container keeps running: it publishes the
// verdict if the policy has publish { by = "pod" }, and otherwise only waits.
func daemonSet(in Input) (Result, error) {
	comment := headComment("daemonset", in, nil)
	byPod := in.Policy.Publish.By == policy.ByPod
	files, err := units.Files(in.Policy, in.Texts, units.DeliveredBy(units.Delivery{Name: commandName("daemonset")}))
	if err != nil {
		return Result{}, err
	}
	k := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- daemonset.yaml\n"
	if byPod {
		k += "- rbac.yaml\n- own-node.yaml # Kubernetes 1.30 and later\n"
	}
	k += "configMapGenerator:\n- name: nodegate-policy\n  namespace: kube-system\n  options: {immutable: true}\n  files:\n"
	var tree []units.File
	for _, f := range files {
		if path.Dir(f.Path) == units.PolicyDir {
			name := "policy.d/" + path.Base(f.Path)
			if !configMapKey(path.Base(f.Path)) {
				return Result{}, fmt.Errorf("the file name %q cannot be a key of a ConfigMap, which allows only letters, digits, -, _ and .: rename it",
					path.Base(f.Path))
			}
			k += "  - " + name + "\n"
			tree = append(tree, units.File{Path: name, Mode: 0o644, Content: f.Content})
		}
	}
	fill := []string{
		"@IMAGE@", in.Delivery.Image, "@ACCOUNT@", "No service account.", "@SERVICEACCOUNT@", "", "@CONDITION@", "", "@PUBLISHER@", "",
		"@PUBLISHERVOLUMES@", "",
	}
	if byPod {
		condition := in.Policy.Publish.Condition
		fill = []string{"@IMAGE@", in.Delivery.Image, "@ACCOUNT@", "The service account's rights: rbac.yaml, own-node.yaml.",
			"@SERVICEACCOUNT@", "      serviceAccountName: nodegate\n", "@CONDITION@", ", --condition, " + condition,
			"@PUBLISHER@", publisherPart, "@PUBLISHERVOLUMES@", publisherVolumes}
		tree = append(tree,
			units.File{Path: "rbac.yaml", Mode: 0o644, Content: []byte(comment + publisherRBAC)},
			units.File{Path: "own-node.yaml", Mode: 0o644, Content: []byte(comment + strings.ReplaceAll(ownNode, "@CONDITION@", condition))})
	}
	manifest := strings.NewReplacer(fill...).Replace(daemonSetManifest)
	return Result{Tree: append(tree,
		units.File{Path: "daemonset.yaml", Mode: 0o644, Content: []byte(comment + manifest)},
		units.File{Path: "kustomization.yaml", Mode: 0o644, Content: []byte(comment + k)},
	)}, nil
}
