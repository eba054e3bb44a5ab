package cluster

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"nodegate/internal/e2e/vm"
)

// Scenario is one end-to-end case on a cluster with one or two machines. It is read from a folder that holds these files
// and no others:
//
//	scenario.md    one sentence: what the scenario proves
//	policy.hcl     optional: for prepare.sh, or what is baked
//	flannel        optional, empty: real flanneld with its VXLAN backend is between the nodes, in place of routes; their
//	               CIDRs are kube-controller-manager's
//	bake           optional, empty: Packer bakes the disks, with policy.hcl and the older one of two releases; $RELEASES is a folder
//	               with both, then, v1.0.0/ and v1.0.1/, each with its program and its .deb
//	prepare.sh     optional: run on the host for each node, sh -eu, with $ROOT the tree, $NODEGATE the binary, $NODE the
//	               node's name and $SCENARIO this folder. Without it nothing is installed, but what is baked. The binary is /opt/nodegate
//	               in each node either way
//	suites         optional: releases of Debian; the scenario runs once on each. $CONTAINERD is a folder with a containerd
//	               for those that lack a current one, then. Without it: on vm.Suite
//	N-nodeM.sh     step N, run in that node: sh -eu with rootfs/opt/cluster/lib.sh, and must exit 0
//	N-plane.sh     step N, run beside the control plane, with kubectl for the administrator; likewise
//	N-nodeM.reboot step N: the node reboots; what the file says is added to the kernel's command line
//
// There are two machines where a step runs in node2, or names it. All machines boot before step 1.
type Scenario struct {
	vm.Folder
	Machines int
	Suites   []string // of Debian; empty: vm.Suite
	Flannel  bool
	Bake     bool
	Steps    []Step
}

// Step is one step of a Scenario.
type Step struct {
	Node   int // 0 beside the control plane
	Reboot bool
	Script string // or words for the kernel's command line
}

// Where names the place of the step.
func (s Step) Where() string {
	if s.Node == 0 {
		return "plane"
	}
	return fmt.Sprintf("node%d", s.Node)
}

var stepName = regexp.MustCompile(`^([1-9][0-9]?)-(plane|node1|node2)\.(sh|reboot)$`)

// Load reads every scenario of a folder.
func Load(dir string) ([]Scenario, error) { return vm.LoadAll(dir, load) }

func load(dir string) (Scenario, error) {
	s := Scenario{Machines: 1}
	steps := map[int]Step{}
	var err error
	s.Folder, err = vm.ReadFolder(dir, func(name, text string) error {
		switch {
		case name == "suites":
			s.Suites = vm.Words(text)
			return nil
		case name == "flannel" && text == "":
			s.Flannel = true
			return nil
		case name == "bake" && text == "":
			s.Bake = true
			return nil
		}
		number, step, err := readStep(name, text)
		if _, twice := steps[number]; err == nil && twice {
			err = fmt.Errorf("%s: there is another step %d", name, number)
		}
		steps[number] = step
		s.Machines = max(s.Machines, step.Node)
		if strings.Contains(step.Script, "node2") {
			s.Machines = 2
		}
		return err
	})
	wrong := []error{err}
	if s.Bake && s.Policy == "" {
		wrong = append(wrong, errors.New("bake: no policy.hcl to bake with"))
	}
	if len(steps) == 0 {
		wrong = append(wrong, errors.New("no step 1"))
	}
	for n := 1; n <= len(steps); n++ {
		step, has := steps[n]
		if !has {
			wrong = append(wrong, fmt.Errorf("no step %d", n))
		}
		s.Steps = append(s.Steps, step)
	}
	return s, errors.Join(wrong...)
}

func readStep(name, text string) (number int, step Step, err error) {
	m := stepName.FindStringSubmatch(name)
	if m == nil {
		return 0, step, fmt.Errorf("%s: not a file of a scenario", name)
	}
	if number, err = strconv.Atoi(m[1]); err != nil {
		return 0, step, err
	}
	switch m[2] {
	case "node1":
		step.Node = 1
	case "node2":
		step.Node = 2
	}
	step.Script, step.Reboot = strings.TrimSpace(text), m[3] == "reboot"
	switch {
	case step.Reboot && step.Node == 0:
		err = fmt.Errorf("%s: the control plane does not reboot", name)
	case !step.Reboot && step.Script == "":
		err = fmt.Errorf("%s: a script says something", name)
	}
	return number, step, err
}
