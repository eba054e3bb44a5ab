package export

import (
	"fmt"
	"strings"

	"nodegate/units"
)

// readinessFiles is what keeps Pods away from a node until its condition is True, each file for the program that acts on it.
// @CONDITION@ is the condition's type, @TAINT@ the taint's key.
var readinessFiles = []struct{ name, what, text string }{
	{"kubelet.yaml", "A drop-in for kubelet (--config-dir), or part of its configuration: the node registers with the taint.",
		`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
registerWithTaints:
- key: @TAINT@
  effect: NoSchedule
`},
	{"rule-bootstrap.yaml", "For the Node Readiness Controller (v0.5): the taint is removed once the condition has been True, for good.",
		`apiVersion: readiness.node.x-k8s.io/v1alpha1
kind: NodeReadinessRule
metadata:
  name: nodegate-bootstrap
spec:
  conditions:
  - type: @CONDITION@
    requiredStatus: "True"
  enforcementMode: bootstrap-only
  taint:
    key: @TAINT@
    effect: NoSchedule
  nodeSelector:
    matchLabels:
      kubernetes.io/os: linux
`},
	{"rule-continuous.yaml", "Instead of rule-bootstrap.yaml: the taint comes back while the condition is not True. Pods that run stay.",
		`apiVersion: readiness.node.x-k8s.io/v1alpha1
kind: NodeReadinessRule
metadata:
  name: nodegate-continuous
spec:
  conditions:
  - type: @CONDITION@
    requiredStatus: "True"
  enforcementMode: continuous
  taint:
    key: @TAINT@
    effect: NoSchedule
  nodeSelector:
    matchLabels:
      kubernetes.io/os: linux
`},
	{
		"machine-health-check.yaml",
		"For Cluster API: part of a MachineHealthCheck. A machine whose condition is False for an hour is replaced;\n" +
			"wait longer than a rollout of a policy takes, and set unhealthyLessThanOrEqualTo: a wrong policy must not replace a fleet.",
		`apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata:
  name: nodegate
spec:
  clusterName: CLUSTER
  selector:
    matchLabels:
      cluster.x-k8s.io/deployment-name: DEPLOYMENT
  checks:
    unhealthyNodeConditions:
    - type: @CONDITION@
      status: "False"
      timeoutSeconds: 3600
  remediation:
    triggerIf:
      unhealthyLessThanOrEqualTo: 10%
`,
	},
	{"rbac.yaml", "For a Pod that publishes (kubelet's own credentials need none of this). A service account may write every Node.",
		publisherRBAC},
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
	for _, f := range readinessFiles {
		text := head("readiness", in, nil, strings.Split(f.what, "\n")...) +
			strings.NewReplacer("@CONDITION@", condition, "@TAINT@", readinessTaint).Replace(f.text)
		tree = append(tree, units.File{Path: f.name, Mode: 0o644, Content: []byte(text)})
	}
	return Result{Tree: tree}, nil
}
