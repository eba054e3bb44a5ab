package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// resources: kubelet exits over what it is told to keep for itself where it cannot read that, or the machine has less.
func resources() checks.Problem {
	return checks.Problem{
		Name: "kubelet.resources", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "kubelet is told to reserve, or to evict at, what is no quantity; or to reserve memory or CPUs that this machine does not " +
			"have, as where one configuration serves machines of several sizes; or to give out CPUs and to reserve none.",
		Symptom: "kubelet restarts for ever: \"quantities must match the regular expression\", \"invalid Node Allocatable configuration. " +
			"Resource \\\"memory\\\" has a reservation of ...\", \"reserved-cpus: 0-7 is not a subset of online-cpus: 0-3\" or \"unable to " +
			"determine reserved CPU resources for static policy\".",
		How: "kubeReserved, systemReserved, evictionHard, evictionSoft with evictionSoftGracePeriod, reservedSystemCPUs and " +
			"cpuManagerPolicy of kubelet's configuration and arguments are read as kubelet does. What is reserved of memory, with evictionHard's " +
			"memory.available, is compared with MemTotal of /proc/meminfo, what is reserved of CPUs with /sys/devices/system/cpu/online. Nothing " +
			"is read where the command line of kubelet's unit cannot be known.",
		Remedy:   "correct the setting that is named: quantities are like 500Mi, 2Gi or 250m",
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/",
		Inspect:  inspectResources,
	}
}

func inspectResources(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("resources that kubelet can reserve")
	k, known, err := readCommand(h, &s)
	if !known {
		return s, err
	}
	j := resourceJudge{k: k, s: &s, cpuList: cmp.Or(k.Flags["reserved-cpus"], k.Values["reservedSystemCPUs"])}
	j.reservations()
	j.evictions()
	j.cpuManager()
	if err := j.machine(ctx, h); err != nil {
		return s, err
	}
	if j.wrong != nil {
		s.Differs(strings.Join(j.wrong, "; "), "")
	}
	return s, nil
}

type resourceJudge struct {
	k            config.Kubelet
	s            *checks.State
	wrong        []string
	cpuList      config.KubeletValue // reservedSystemCPUs; these count, and no number of CPUs
	memory, cpus float64             // reserved: bytes, number
	ofMemory     []config.KubeletValue
	ofCPUs       []config.KubeletValue
}

func (j *resourceJudge) blame(why string, settings ...config.KubeletValue) {
	j.wrong = append(j.wrong, why)
	for _, v := range settings {
		if seen := checks.Seen(v.From.Source, v.From.Text); v.Value != "" && !slices.Contains(j.s.Evidence, seen) {
			j.s.Evidence = append(j.s.Evidence, seen)
		}
	}
}

// reservations reads as parseResourceList in cmd/kubelet/app/server.go does.
func (j *resourceJudge) reservations() {
	for _, m := range [][2]string{{"kubeReserved", "kube-reserved"}, {"systemReserved", "system-reserved"}} {
		all := each(j.k, m[0], m[1], "=")
		for _, name := range slices.Sorted(maps.Keys(all)) {
			amount, valid := quantity(all[name].Value)
			switch {
			case name == "cpu" && j.cpuList.Value != "":
			case !slices.Contains([]string{"cpu", "memory", "ephemeral-storage", "pid"}, name):
				j.blame(m[0]+" cannot have "+name, all[name])
			case !valid || amount < 0:
				j.blame(fmt.Sprintf("%s of %s is %q", name, m[0], all[name].Value), all[name])
			case name == "cpu":
				j.cpus += amount
				j.ofCPUs = append(j.ofCPUs, all[name])
			case name == "memory":
				j.memory += amount
				j.ofMemory = append(j.ofMemory, all[name])
			}
		}
	}
}

// evictions reads as ParseThresholdConfig in pkg/kubelet/eviction/helpers.go does, except for the names: later versions have more.
func (j *resourceJudge) evictions() {
	grace := each(j.k, "evictionSoftGracePeriod", "eviction-soft-grace-period", "=")
	for _, m := range [][2]string{{"evictionHard", "eviction-hard"}, {"evictionSoft", "eviction-soft"}} {
		all := each(j.k, m[0], m[1], "<")
		for _, signal := range slices.Sorted(maps.Keys(all)) {
			v := all[signal]
			amount, valid := quantity(v.Value)
			valid = valid && amount > 0
			if share, is := strings.CutSuffix(v.Value, "%"); is {
				percent, err := strconv.ParseFloat(share, 32)
				valid = err == nil && percent >= 0 && percent <= 100
			}
			_, noPeriod := time.ParseDuration(grace[signal].Value)
			switch {
			case !valid:
				j.blame(fmt.Sprintf("%s of %s is %q", signal, m[0], v.Value), v)
			case m[0] == "evictionSoft" && noPeriod != nil:
				j.blame(signal+" of evictionSoft has no evictionSoftGracePeriod", v, grace[signal])
			case m[0] == "evictionHard" && signal == "memory.available" && j.k.Flags["experimental-allocatable-ignore-eviction"].Value == "":
				j.memory += amount // none of a percentage
				j.ofMemory = append(j.ofMemory, v)
			}
		}
	}
}

func (j *resourceJudge) cpuManager() {
	switch manager := j.k.Values["cpuManagerPolicy"]; manager.Value {
	case "", "none":
	case "static":
		if j.cpus == 0 && j.cpuList.Value == "" {
			j.blame("cpuManagerPolicy is static, and no CPU is reserved", manager)
		}
	default:
		j.blame(fmt.Sprintf("cpuManagerPolicy is %q, not none or static", manager.Value), manager)
	}
}

// machine asks the machine for what it has, where something is reserved.
func (j *resourceJudge) machine(ctx context.Context, h *host.Host) error {
	if j.memory > 0 {
		fact, known := h.Fact(ctx, "node.memory")
		has, _ := fact.(int64)
		if !known {
			return errors.New("/proc/meminfo does not say how much memory the machine has")
		}
		if j.memory > float64(has) {
			j.blame(fmt.Sprintf("%.0f MiB of memory are reserved, and the machine has %d", j.memory/(1<<20), has>>20), j.ofMemory...)
		}
	}
	if j.cpus > 0 {
		fact, known := h.Fact(ctx, "node.cpus")
		has, _ := fact.(int64)
		if !known {
			return errors.New("/sys/devices/system/cpu/online does not say how many CPUs the machine has")
		}
		const rounding = 1e-6 // of sums such as 0.9 and 1.1
		if j.cpus > float64(has)+rounding {
			j.blame(fmt.Sprintf("%v CPUs are reserved, and the machine has %d", j.cpus, has), j.ofCPUs...)
		}
	}
	if j.cpuList.Value == "" {
		return nil
	}
	online, err := h.Text("/sys/devices/system/cpu/online")
	if err != nil {
		return err
	}
	has := cpus(online)
	if slices.ContainsFunc(cpus(j.cpuList.Value), func(cpu int) bool { return has != nil && !slices.Contains(has, cpu) }) {
		j.blame("reservedSystemCPUs are "+j.cpuList.Value+", and the machine has "+strings.TrimSpace(online), j.cpuList)
	}
	return nil
}

// each returns the entries of a map in kubelet's configuration, or of its flag, which replaces the whole map.
func each(k config.Kubelet, setting, flag, between string) map[string]config.KubeletValue {
	all := map[string]config.KubeletValue{}
	given := k.Given(flag)
	for _, text := range given {
		for pair := range strings.SplitSeq(text, ",") {
			if name, value, is := strings.Cut(pair, between); is {
				all[strings.TrimSpace(name)] = config.KubeletValue{Value: strings.TrimSpace(value), From: k.Flags[flag].From}
			}
		}
	}
	if given == nil {
		maps.Copy(all, k.Values)
		maps.DeleteFunc(all, func(name string, _ config.KubeletValue) bool { return !strings.HasPrefix(name, setting+".") })
		for _, name := range slices.Collect(maps.Keys(all)) {
			all[strings.TrimPrefix(name, setting+".")] = all[name]
			delete(all, name)
		}
	}
	return all
}

// quantity returns the value of a quantity of Kubernetes, like 500m or 1.5Gi. It reads every one that Kubernetes reads (parseQuantityString
// and suffixHandler in apimachinery's pkg/api/resource, which is too large for these few lines).
func quantity(text string) (value float64, valid bool) {
	m := regexp.MustCompile(`^[+-]?([0-9]*\.?[0-9]*)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$`).FindStringSubmatch(text)
	if m == nil || text == "" {
		return 0, false
	}
	number, suffix := m[1], m[2]
	value, _ = strconv.ParseFloat("0"+number, 64) // the pattern has no other
	switch small := strings.Index("num", suffix); {
	case suffix == "":
	case small >= 0:
		value *= math.Pow(1000, float64(small-3))
	case strings.HasSuffix(suffix, "i"):
		value *= math.Pow(1024, float64(1+strings.Index("KMGTPE", suffix[:1])))
	case len(suffix) == 1:
		value *= math.Pow(1000, float64(1+strings.Index("kMGTPE", suffix)))
	default:
		exponent, _ := strconv.Atoi(suffix[1:])
		value *= math.Pow(10, float64(exponent))
	}
	value = min(value, math.MaxInt64) // Kubernetes has no larger one either
	if text[0] == '-' {
		value = -value
	}
	return value, true
}
