package cluster

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"nodegate/internal/e2e/vm"
)

// Scenario is one end-to-end case on a cluster with one or two machines. It is read from a directory with these files and no others:
//
//	scenario.md    one sentence: the behaviour that the scenario proves
//	policy.hcl     optional: for prepare.sh, or for the bake
//	flannel        optional, empty: the nodes are connected by real flanneld with its VXLAN backend instead of routes, and
//	               kube-controller-manager assigns their CIDRs
//	bake           optional, empty: Packer bakes the disks with policy.hcl and the older of two releases. $RELEASES is then a
//	               directory with both, v1.0.0/ and v1.0.1/, each with its program and its .deb
//	prepare.sh     optional: run on the host for each node, sh -eu, with $ROOT (the tree), $NODEGATE (the binary), $NODE (the
//	               node's name) and $SCENARIO (this directory). Without it nothing is installed, except by the bake. The binary
//	               is /opt/nodegate in each node in any case
//	suites         optional: releases of Debian; the scenario runs once on each. $CONTAINERD is then a directory with a
//	               containerd for releases without a current one. Default: vm.Suite
//	N-nodeM.sh     step N, run in that node: sh -eu with rootfs/opt/cluster/lib.sh, and must exit 0
//	N-plane.sh     step N, run beside the control plane with the administrator's kubectl; likewise
//	N-nodeM.reboot step N: the node reboots; the content of the file is added to the kernel's command line
//
// There are two machines if a step runs on node2 or names it. All machines boot before step 1.
type Scenario struct {
	vm.Folder
	Machines int
	Suites   []string // releases of Debian; empty: vm.Suite
	Flannel  bool
	Bake     bool
	Steps    []Step
}

// Step is one step of a Scenario.
type Step struct {
	Node   int // 0 for the control plane
	Reboot bool
	Script string // or words for the kernel's command line
}

// Where returns the name of the place where the step runs.
func (s Step) Where() string {
	if s.Node == 0 {
		return "plane"
	}
	return fmt.Sprintf("node%d", s.Node)
}

var stepName = regexp.MustCompile(`^([1-9][0-9]?)-(plane|node1|node2)\.(sh|reboot)$`)

// Load reads every scenario of a directory.
func Load(dir string) ([]Scenario, error) { return vm.LoadAll(dir, loadScenario) }

func loadScenario(dir string) (Scenario, error) {
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
			err = fmt.Errorf("%s: another file already is step %d", name, number)
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
		wrong = append(wrong, errors.New("bake: policy.hcl is missing"))
	}
	if len(steps) == 0 {
		wrong = append(wrong, errors.New("step 1 is missing"))
	}
	for n := 1; n <= len(steps); n++ {
		step, has := steps[n]
		if !has {
			wrong = append(wrong, fmt.Errorf("step %d is missing", n))
		}
		s.Steps = append(s.Steps, step)
	}
	return s, errors.Join(wrong...)
}

func readStep(name, text string) (number int, step Step, err error) {
	m := stepName.FindStringSubmatch(name)
	if m == nil {
		return 0, step, fmt.Errorf("%s: unknown file", name)
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
		err = fmt.Errorf("%s: the control plane cannot reboot", name)
	case !step.Reboot && step.Script == "":
		err = fmt.Errorf("%s: the script is empty", name)
	}
	return number, step, err
}
