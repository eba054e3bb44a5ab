package kubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// policyOptions: kubelet exits over an option of its CPU or topology manager that it does not have.
func policyOptions() checks.Problem {
	return checks.Problem{
		Name: "kubelet.policy-options", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "cpuManagerPolicyOptions or topologyManagerPolicyOptions contain an option that this kubelet does not have or that needs a " +
			"feature gate, a value that it rejects, or options that exclude each other; or the machine has more NUMA nodes than the topology " +
			"manager accepts.",
		Symptom: "kubelet restarts forever: \"unknown CPU Manager Policy option\", \"CPU Manager Policy Alpha-level Options not enabled\" or " +
			"\"None policy: received unsupported options\".",
		How: "Compares the options of the configuration and of the flags with those of kubelet's version, as `kubelet --version` prints it, " +
			"and their stages with the feature gates. kubelet ignores the topology manager's options if topologyManagerPolicy is none. Options " +
			"that a kubelet later than 1." + strconv.Itoa(newestMinor) + " may have added are not judged. Skipped if the command line of " +
			"kubelet's unit is unknown.",
		Remedy: "remove the option, or enable the feature gate that it needs",
		Ref:    "https://kubernetes.io/docs/concepts/policy/node-resource-managers/",
		Inspect: func(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectPolicyOptions(ctx, h)
		},
	}
}

// newestMinor is the minor version of the newest kubelet whose options are known.
const newestMinor = 37

// policyOption is an option and the minor versions in which it became alpha, beta and stable; 0 if it has not.
type policyOption struct {
	name                string
	alpha, beta, stable int
}

// cpuOptions are from pkg/kubelet/cm/cpumanager/policy_options.go.
func cpuOptions() []policyOption {
	return []policyOption{
		{"full-pcpus-only", 22, 23, 33}, {"distribute-cpus-across-numa", 23, 33, 0}, {"align-by-socket", 25, 0, 0},
		{"distribute-cpus-across-cores", 31, 0, 0}, {"strict-cpu-reservation", 32, 33, 35},
		{"prefer-align-cpus-by-uncorecache", 32, 34, 36},
	}
}

// topologyOptions are from pkg/kubelet/cm/topologymanager/policy_options.go.
func topologyOptions() []policyOption {
	return []policyOption{{"prefer-closest-numa-nodes", 26, 28, 32}, {"max-allowable-numa-nodes", 31, 31, 35}}
}

// exclusiveOptions are pairs of CPU options that NewStaticPolicyOptions refuses together.
func exclusiveOptions() [][2]string {
	const cores, uncore = "distribute-cpus-across-cores", "prefer-align-cpus-by-uncorecache"
	return [][2]string{
		{"full-pcpus-only", cores}, {"distribute-cpus-across-numa", cores}, {uncore, cores}, {uncore, "distribute-cpus-across-numa"},
	}
}

type optionJudge struct {
	k     config.Kubelet
	minor int
	s     *checks.State
	wrong []string
}

func inspectPolicyOptions(ctx context.Context, h *host.Host) (checks.State, error) {
	s := checks.Passing("options that kubelet's managers accept")
	k, known, err := readConfigAndCommand(h, &s)
	if !known {
		return s, err
	}
	j := optionJudge{k: k, s: &s}
	cpu := mapEntries(k, "cpuManagerPolicyOptions", "cpu-manager-policy-options", "=")
	topology := mapEntries(k, "topologyManagerPolicyOptions", "topology-manager-policy-options", "=")
	aligns := k.Values["topologyManagerPolicy"].Value
	if aligns == "none" {
		aligns = ""
	}
	if len(cpu) > 0 || aligns != "" {
		if j.minor, err = h.KubeletMinor(ctx); err != nil {
			return s, err
		}
	}
	j.judgeCPU(cpu, aligns)
	if aligns != "" {
		if err := j.judgeTopology(h, topology); err != nil {
			return s, err
		}
	}
	if j.wrong != nil {
		s.Differs(strings.Join(j.wrong, "; "), "")
	}
	return s, nil
}

func (j *optionJudge) addWrong(v config.KubeletValue, why string) {
	j.wrong = append(j.wrong, why)
	addSeen(j.s, v)
}

func (j *optionJudge) judgeCPU(options map[string]config.KubeletValue, aligns string) {
	names := slices.Sorted(maps.Keys(options))
	if j.k.Values["cpuManagerPolicy"].Value != "static" {
		if len(names) > 0 { // NewNonePolicy
			j.addWrong(options[names[0]], "cpuManagerPolicyOptions has "+names[0]+", but cpuManagerPolicy is not static")
		}
		return
	}
	isOn := func(name string) bool { on, _ := config.ParseBool(options[name].Value); return on }
	for _, name := range names {
		v := options[name]
		if !j.judgeStage("CPUManager", "cpuManagerPolicyOptions", name, v, cpuOptions()) {
			continue
		}
		if _, err := strconv.ParseBool(v.Value); err != nil {
			j.addWrong(v, fmt.Sprintf("cpuManagerPolicyOptions %s is %q; it must be true or false", name, v.Value))
		}
	}
	for _, pair := range exclusiveOptions() {
		if isOn(pair[0]) && isOn(pair[1]) {
			j.addWrong(options[pair[0]], "cpuManagerPolicyOptions "+pair[0]+" and "+pair[1]+" exclude each other")
			addSeen(j.s, options[pair[1]])
		}
	}
	if isOn("align-by-socket") && aligns == "single-numa-node" { // ValidateStaticPolicyOptions
		j.addWrong(options["align-by-socket"], "cpuManagerPolicyOptions align-by-socket excludes topologyManagerPolicy single-numa-node")
	}
}

// mostNUMANodes is defaultMaxAllowableNUMANodes in pkg/kubelet/cm/topologymanager/topology_manager.go.
const mostNUMANodes = 8

func (j *optionJudge) judgeTopology(h *host.Host, options map[string]config.KubeletValue) error {
	most := mostNUMANodes
	for _, name := range slices.Sorted(maps.Keys(options)) {
		v := options[name]
		if !j.judgeStage("TopologyManager", "topologyManagerPolicyOptions", name, v, topologyOptions()) {
			continue
		}
		if name == "max-allowable-numa-nodes" {
			if number, err := strconv.Atoi(v.Value); err == nil && number >= mostNUMANodes {
				most = number
			} else {
				j.addWrong(v, fmt.Sprintf("topologyManagerPolicyOptions %s is %q; it must be a number, at least %d", name, v.Value, mostNUMANodes))
			}
		} else if _, err := strconv.ParseBool(v.Value); err != nil {
			j.addWrong(v, fmt.Sprintf("topologyManagerPolicyOptions %s is %q; it must be true or false", name, v.Value))
		}
	}
	nodes, err := numaNodes(h)
	if len(nodes) > most {
		j.addWrong(j.k.Values["topologyManagerPolicy"], fmt.Sprintf("the machine has %d NUMA nodes, and the topology manager accepts %d",
			len(nodes), most))
	}
	return err
}

// judgeStage reports whether kubelet has an option and its gate is on (CheckPolicyOptionAvailable). It adds the fault if not.
func (j *optionJudge) judgeStage(manager, setting, name string, v config.KubeletValue, known []policyOption) (available bool) {
	i := slices.IndexFunc(known, func(o policyOption) bool { return o.name == name })
	if i < 0 || j.minor > 0 && j.minor < known[i].alpha {
		if j.minor <= newestMinor {
			j.addWrong(v, fmt.Sprintf("%s has %s, which this kubelet does not have", setting, name))
		}
		return false
	}
	o := known[i]
	if j.minor == 0 || o.stable > 0 && j.minor >= o.stable {
		return true
	}
	stage, gate, on := "Alpha", manager+"PolicyAlphaOptions", false
	if o.beta > 0 && j.minor >= o.beta {
		stage, gate, on = "Beta", manager+"PolicyBetaOptions", true
	}
	if every, set := j.k.Gate("All" + stage); set {
		on = every
	}
	if own, set := j.k.Gate(gate); set {
		on = own
	}
	if !on && (stage == "Beta" || j.minor <= newestMinor) {
		j.addWrong(v, fmt.Sprintf("%s has %s, which needs the feature gate %s", setting, name, gate))
		return false
	}
	return true
}
