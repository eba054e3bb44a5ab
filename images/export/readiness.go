package export

import (
	"embed"
	"fmt"
	"strings"

	"nodegate/units"
)

// readinessTexts keep Pods away from a node until its condition is True, each file for the program that acts on it.
// @CONDITION@ is the condition's type, @TAINT@ the taint's key.
//
//go:embed readiness
var readinessTexts embed.FS

// readinessFiles are these files, and what each is for.
func readinessFiles() [][2]string {
	return [][2]string{
		{"kubelet.yaml", "A drop-in for kubelet (--config-dir), or part of its configuration: the node registers with the taint."},
		{"rule-bootstrap.yaml",
			"For the Node Readiness Controller (v0.5): the taint is removed once the condition has been True, for good."},
		{"rule-continuous.yaml",
			"Instead of rule-bootstrap.yaml: the taint comes back while the condition is not True. Pods that run stay."},
		{"machine-health-check.yaml",
			"For Cluster API: part of a MachineHealthCheck. A machine whose condition is False for an hour is replaced;\n" +
				"wait longer than a rollout of a policy takes, and set unhealthyLessThanOrEqualTo: a wrong policy must not replace a fleet."},
		{"rbac.yaml",
			"For a Pod that publishes (kubelet's own credentials need none of this). A service account may write every Node."},
	}
}

// readinessTaint is under the prefix that the Node Readiness Controller demands, and that Karpenter (1.13 on) takes for
// temporary.
const readinessTaint = "readiness.k8s.io/nodegate"

// readiness is what the cluster needs to act on the condition that the policy publishes.
func readiness(in Input) (Result, error) {
	condition := in.Policy.Publish.Condition
	if condition == "" {
		return Result{}, fmt.Errorf("the policy has no publish block, so that there is no condition to act on; write: publish {}")
	}
	var tree []units.File
	for _, f := range readinessFiles() {
		name, what := f[0], f[1]
		text, err := readinessTexts.ReadFile("readiness/" + name)
		if err != nil {
			return Result{}, err
		}
		filled := strings.NewReplacer("@CONDITION@", condition, "@TAINT@", readinessTaint).Replace(string(text))
		comment := head("readiness", in, nil, strings.Split(what, "\n")...)
		tree = append(tree, units.File{Path: name, Mode: 0o644, Content: []byte(comment + filled)})
	}
	return Result{Tree: tree}, nil
}
