package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// Publish configures how the verdict is reported to the cluster, as a condition of this node's Node object.
type Publish struct {
	Condition  string // its type; "" if nothing is published
	Kubeconfig string // absolute; "": kubelet's own, or a Pod's service account
	Node       string // "": the node that the credentials belong to
	By         Publisher
	Range      hcl.Range
}

// Publisher is the program that publishes the verdict.
type Publisher string

// The publishers: watch, and the Pod of a DaemonSet with its service account.
const (
	ByWatch Publisher = "watch"
	ByPod   Publisher = "pod"
)

// describe returns the publish block as a phrase.
func (p Publish) describe() string {
	return fmt.Sprintf("condition %s of %s, written by %s with %s", p.Condition, cmp.Or(p.Node, "the credentials' node"), p.By,
		cmp.Or(p.Kubeconfig, "kubelet's credentials"))
}

const defaultCondition = "NodegatePassed"

// isConditionType reports whether the API server accepts s as the type of a condition: a name, optionally prefixed by a domain.
func isConditionType(s string) bool {
	form := regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	return len(s) <= 316 && form.MatchString(s)
}

// takenConditions returns types that are in use: conditions that kubelet or a controller writes, and conditions that node repair acts on.
// Karpenter and EKS replace a machine if one of the latter is False for a time (karpenter-provider-aws, pkg/cloudprovider, RepairPolicies).
func takenConditions() (kubelet, repair []string) {
	return []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"},
		[]string{"NetworkingReady", "KernelReady", "StorageReady", "ContainerRuntimeReady", "AcceleratedHardwareReady"}
}

func (r *reader) decodePublish(b Stanza) Publish {
	p := Publish{Condition: defaultCondition, Kubeconfig: r.kubeconfig(b), Node: r.nodeName(b), Range: b.Range}
	if c := r.text(b.Get("condition"), "condition"); c != "" {
		p.Condition = c
	}
	kubelet, repair := takenConditions()
	switch {
	case slices.Contains(kubelet, p.Condition):
		r.errorf(b.At("condition"), "Condition in use", "kubelet or a controller writes the condition %s; "+
			"remove condition to use %s, or choose another name.", p.Condition, defaultCondition)
	case slices.Contains(repair, p.Condition):
		r.errorf(b.At("condition"), "Condition that deletes machines", "Node repair (Karpenter, EKS) replaces a machine if %s is False; "+
			"a wrong policy would then replace every node. Remove condition to use %s, or choose another name.", p.Condition, defaultCondition)
	case !isConditionType(p.Condition):
		r.errorf(b.At("condition"), "Not a condition's type", "Write the condition's type in letters, digits, -, _ and ., for example %s or "+
			"example.com/%s; %q is not a valid type.", defaultCondition, defaultCondition, p.Condition)
	}
	p.By = Publisher(r.oneOf(b.Get("by"), "by", string(ByWatch), string(ByPod)))
	if p.By == ByPod && (b.Get("kubeconfig") != nil || b.Get("node") != nil) {
		r.errorf(b.At("by"), "Not for a Pod",
			"A Pod publishes with its service account, for the Node that it runs on: remove kubeconfig and node.")
	}
	return p
}
