package export

import (
	"embed"
	"fmt"
	"strings"

	"nodegate/units"
)

// readinessTexts contains manifests that keep Pods away from a node until its condition is True. Each
// file is for another program. @CONDITION@ is the type of the condition, @TAINT@ the key of the taint.
//
//go:embed readiness
var readinessTexts embed.FS

// readinessFiles lists these files, each with a description.
func readinessFiles() [][2]string {
	return [][2]string{
		{"kubelet.yaml", "A drop-in for kubelet (--config-dir) or a part of its configuration: the node registers with the taint."},
		{"rule-bootstrap.yaml",
			"For the Node Readiness Controller (v0.5): it removes the taint for good as soon as the condition is True."},
		{"rule-continuous.yaml",
			"Instead of rule-bootstrap.yaml: the taint returns while the condition is not True. Running Pods stay."},
		{"machine-health-check.yaml",
			"For Cluster API: a part of a MachineHealthCheck. It replaces a machine whose condition is False for an hour.\n" +
				"Choose a timeout longer than the rollout of a policy, and set unhealthyLessThanOrEqualTo: a wrong policy must not replace a fleet."},
		{"rbac.yaml",
			"For a Pod that publishes. With kubelet's credentials it is not needed. The service account may write every Node."},
	}
}

// readinessTaint has the prefix that the Node Readiness Controller demands, and that Karpenter 1.13 and
// later treats as temporary.
const readinessTaint = "readiness.k8s.io/nodegate"

// readiness writes the manifests with which a cluster acts on the condition that the policy publishes.
func readiness(in Input) (Result, error) {
	condition := in.Policy.Publish.Condition
	if condition == "" {
		return Result{}, fmt.Errorf("the policy publishes no condition; add the block `publish {}`")
	}
	var tree []units.File
	for _, f := range readinessFiles() {
		name, description := f[0], f[1]
		text, err := readinessTexts.ReadFile("readiness/" + name)
		if err != nil {
			return Result{}, err
		}
		filled := strings.NewReplacer("@CONDITION@", condition, "@TAINT@", readinessTaint).Replace(string(text))
		comment := headComment("readiness", in, nil, strings.Split(description, "\n")...)
		tree = append(tree, units.File{Path: name, Mode: 0o644, Content: []byte(comment + filled)})
	}
	return Result{Tree: tree}, nil
}
