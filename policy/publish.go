package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// Publish says how watch, or a timer, tells the cluster what was found: as a condition of this node's Node.
type Publish struct {
	Condition  string // its type; "" where nothing is published
	Kubeconfig string // absolute; "": kubelet's own, or a Pod's service account
	Node       string // "": the node that the credentials are of
	By         Publisher
	Range      hcl.Range
}

// Publisher is who publishes.
type Publisher string

// The publishers: watch, a timer that starts one, and the Pod of a DaemonSet, with its service account.
const (
	ByWatch Publisher = "watch"
	ByTimer Publisher = "timer"
	ByPod   Publisher = "pod"
)

// want returns the publish block in words.
func (p Publish) describe() string {
	return fmt.Sprintf("%s, by %s, of %s, with %s", p.Condition, p.By, cmp.Or(p.Node, "the credentials' node"),
		cmp.Or(p.Kubeconfig, "kubelet's credentials"))
}

const defaultCondition = "NodegatePassed"

// isConditionType reports whether the API server accepts a type of condition: a name, with or without a domain before it.
func isConditionType(s string) bool {
	form := regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	return len(s) <= 316 && form.MatchString(s)
}

// takenConditions are the types that others write, or act on. Karpenter's node repair and EKS replace a machine whose
// condition of the second list is False for a time (karpenter-provider-aws, pkg/cloudprovider, RepairPolicies).
func takenConditions() (kubelet, repair []string) {
	return []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"},
		[]string{"NetworkingReady", "KernelReady", "StorageReady", "ContainerRuntimeReady", "AcceleratedHardwareReady"}
}

func (r *reader) decodePublish(b block) Publish {
	p := Publish{Condition: defaultCondition, Kubeconfig: r.kubeconfig(b), Node: r.nodeName(b), Range: b.Range}
	if c := r.text(b.get("condition"), "condition"); c != "" {
		p.Condition = c
	}
	kubelet, repair := takenConditions()
	switch {
	case slices.Contains(kubelet, p.Condition):
		r.errorf(b.at("condition"), "Not a condition of ours", "kubelet or a controller writes the condition %s itself; "+
			"leave condition out for %s, or choose another name.", p.Condition, defaultCondition)
	case slices.Contains(repair, p.Condition):
		r.errorf(b.at("condition"), "A condition that deletes machines", "Node repair (Karpenter, EKS) replaces a machine whose %s is False; "+
			"a wrong policy would then replace every node. Leave condition out for %s, or choose another name.", p.Condition, defaultCondition)
	case !isConditionType(p.Condition):
		r.errorf(b.at("condition"), "Not a condition's type", "A condition's type is letters, digits, -, _ and ., for example %s or "+
			"example.com/%s; %q is not.", defaultCondition, defaultCondition, p.Condition)
	}
	p.By = Publisher(r.oneOf(b.get("by"), "by", string(ByWatch), string(ByTimer), string(ByPod)))
	if p.By == ByPod && (b.get("kubeconfig") != nil || b.get("node") != nil) {
		r.errorf(b.at("by"), "A Pod has an account",
			"A Pod publishes with its service account, for the Node that it runs on: leave kubeconfig and node out.")
	}
	return p
}
