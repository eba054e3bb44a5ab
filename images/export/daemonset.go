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

// publisherPart is what the container that stays needs to publish: what watch writes, and a service account's token, which the init
// container has not.
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

// publisherRBAC is what a service account needs to publish. Events of Nodes are in the namespace default.
//
//go:embed readiness/rbac.yaml
var publisherRBAC string

// configMapKey reports whether the API server takes a name as the key of a ConfigMap (IsConfigMapKey in k8s.io/apimachinery).
func configMapKey(name string) bool {
	return len(name) <= 253 && !strings.ContainsFunc(name, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune("-_.", r)
	})
}

// daemonSet is a kustomize base. Its pod installs below the host's folders and
// asks the host's systemd to start the units; what stays is a container that publishes what
// they find, where the policy has publish { by = "pod" }, or waits.
func daemonSet(in Input) (Result, error) {
	comment := head("daemonset", in, nil)
	byPod := in.Policy.Publish.By == policy.ByPod
	files, err := units.Files(in.Policy, in.Texts, units.DeliveredBy(units.Delivery{Name: command("daemonset")}))
	if err != nil {
		return Result{}, err
	}
	k := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- daemonset.yaml\n"
	if byPod {
		k += "- rbac.yaml\n- own-node.yaml # Kubernetes 1.30 and later\n"
	}
	k += "configMapGenerator:\n- name: nodegate-policy\n  namespace: kube-system\n  files:\n"
	var tree []units.File
	for _, f := range files {
		if path.Dir(f.Path) == units.PolicyDir {
			name := "policy.d/" + path.Base(f.Path)
			if !configMapKey(path.Base(f.Path)) {
				return Result{}, fmt.Errorf("the policy would be the key %q of a ConfigMap, which is letters, digits, -, _ and . only: rename it",
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
