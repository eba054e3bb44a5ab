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

// resources: kubelet exits if a reservation cannot be parsed or exceeds the machine's resources.
func resources() checks.Problem {
	return checks.Problem{
		Name: "kubelet.resources", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "A reservation or eviction threshold is not a valid quantity; kubelet reserves memory or CPUs that " +
			"this machine does not have, for example because one configuration serves machines of several sizes; or the static CPU " +
			"manager has no reserved CPU.",
		Symptom: "kubelet restarts forever: \"quantities must match the regular expression\", \"invalid Node " +
			"Allocatable configuration. Resource \\\"memory\\\" has a reservation of ...\", \"reserved-cpus: 0-7 is not a subset of " +
			"online-cpus: 0-3\" or \"unable to determine reserved CPU resources for static policy\".",
		How: "Parses kubeReserved, systemReserved, evictionHard, evictionSoft with evictionSoftGracePeriod, " +
			"evictionMinimumReclaim, reservedSystemCPUs and cpuManagerPolicy from kubelet's configuration and flags as kubelet does. Compares " +
			"reserved memory plus evictionHard's memory.available with MemTotal in /proc/meminfo, and reserved CPUs with " +
			"/sys/devices/system/cpu/online. Skipped if the command line of kubelet's unit is unknown.",
		Remedy:   "correct the named setting; quantities look like 500Mi, 2Gi or 250m",
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/",
		Inspect:  inspectResources,
	}
}

func inspectResources(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("resources that kubelet can reserve")
	k, known, err := readConfigAndCommand(h, &s)
	if !known {
		return s, err
	}
	j := resourceJudge{k: k, s: &s, cpuList: cmp.Or(k.Flags["reserved-cpus"], k.Values["reservedSystemCPUs"])}
	j.judgeReservations()
	j.judgeEvictions()
	j.judgeCPUManager()
	if err := j.compareWithMachine(ctx, h); err != nil {
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
	cpuList      config.KubeletValue // reservedSystemCPUs; if set, the cpu reservations do not count
	memory, cpus float64             // reserved: bytes, number
	ofMemory     []config.KubeletValue
	ofCPUs       []config.KubeletValue
}

func (j *resourceJudge) addWrong(why string, settings ...config.KubeletValue) {
	j.wrong = append(j.wrong, why)
	addSeen(j.s, settings...)
}

// judgeReservations parses reservations as parseResourceList in cmd/kubelet/app/server.go does.
func (j *resourceJudge) judgeReservations() {
	for _, m := range [][2]string{{"kubeReserved", "kube-reserved"}, {"systemReserved", "system-reserved"}} {
		all := mapEntries(j.k, m[0], m[1], "=")
		for _, name := range slices.Sorted(maps.Keys(all)) {
			amount, valid := parseQuantity(all[name].Value)
			switch {
			case name == "cpu" && j.cpuList.Value != "":
			case !slices.Contains([]string{"cpu", "memory", "ephemeral-storage", "pid"}, name):
				j.addWrong(m[0]+" cannot reserve "+name, all[name])
			case !valid || amount < 0:
				j.addWrong(fmt.Sprintf("%s %s %q is invalid", m[0], name, all[name].Value), all[name])
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

// judgeEvictions parses thresholds as ParseThresholdConfig in pkg/kubelet/eviction/helpers.go does.
// It accepts any signal name, because later versions have more.
func (j *resourceJudge) judgeEvictions() {
	reclaim := mapEntries(j.k, "evictionMinimumReclaim", "eviction-minimum-reclaim", "=")
	for _, signal := range slices.Sorted(maps.Keys(reclaim)) { // parseMinimumReclaims
		v := reclaim[signal]
		amount, valid := parseQuantity(v.Value)
		if share, is := strings.CutSuffix(v.Value, "%"); is {
			var err error
			amount, err = strconv.ParseFloat(share, 32)
			valid = err == nil
		}
		if !valid || amount < 0 {
			j.addWrong(fmt.Sprintf("evictionMinimumReclaim %s %q is invalid", signal, v.Value), v)
		}
	}
	grace := mapEntries(j.k, "evictionSoftGracePeriod", "eviction-soft-grace-period", "=")
	for _, m := range [][2]string{{"evictionHard", "eviction-hard"}, {"evictionSoft", "eviction-soft"}} {
		all := mapEntries(j.k, m[0], m[1], "<")
		for _, signal := range slices.Sorted(maps.Keys(all)) {
			v := all[signal]
			amount, valid := parseQuantity(v.Value)
			valid = valid && amount > 0
			if share, is := strings.CutSuffix(v.Value, "%"); is {
				percent, err := strconv.ParseFloat(share, 32)
				valid = err == nil && percent >= 0 && percent <= 100
			}
			_, noPeriod := time.ParseDuration(grace[signal].Value)
			switch {
			case !valid:
				j.addWrong(fmt.Sprintf("%s %s %q is invalid", m[0], signal, v.Value), v)
			case m[0] == "evictionSoft" && noPeriod != nil:
				j.addWrong("evictionSoft "+signal+" has no evictionSoftGracePeriod", v, grace[signal])
			case m[0] == "evictionHard" && signal == "memory.available" && j.k.Flags["experimental-allocatable-ignore-eviction"].Value == "":
				j.memory += amount // 0 for a percentage
				j.ofMemory = append(j.ofMemory, v)
			}
		}
	}
}

func (j *resourceJudge) judgeCPUManager() {
	switch manager := j.k.Values["cpuManagerPolicy"]; manager.Value {
	case "", "none":
	case "static":
		if j.cpus == 0 && j.cpuList.Value == "" {
			j.addWrong("cpuManagerPolicy is static, and no CPU is reserved", manager)
		}
	default:
		j.addWrong(fmt.Sprintf("cpuManagerPolicy is %q; it must be none or static", manager.Value), manager)
	}
}

// compareWithMachine compares the reservations with the machine's memory and CPUs.
func (j *resourceJudge) compareWithMachine(ctx context.Context, h *host.Host) error {
	if j.memory > 0 {
		fact, known := h.Fact(ctx, "node.memory")
		has, _ := fact.(int64)
		if !known {
			return errors.New("/proc/meminfo does not show the size of memory")
		}
		if j.memory > float64(has) {
			j.addWrong(fmt.Sprintf("%.0f MiB of memory are reserved, but the machine has %d MiB", j.memory/(1<<20), has>>20), j.ofMemory...)
		}
	}
	if j.cpus > 0 {
		fact, known := h.Fact(ctx, "node.cpus")
		has, _ := fact.(int64)
		if !known {
			return errors.New("/sys/devices/system/cpu/online does not list the CPUs")
		}
		const rounding = 1e-6 // for sums such as 0.9 + 1.1
		if j.cpus > float64(has)+rounding {
			j.addWrong(fmt.Sprintf("%v CPUs are reserved, but the machine has %d", j.cpus, has), j.ofCPUs...)
		}
	}
	if j.cpuList.Value == "" {
		return nil
	}
	online, err := h.Text("/sys/devices/system/cpu/online")
	if err != nil {
		return err
	}
	has := parseCPUList(online)
	if slices.ContainsFunc(parseCPUList(j.cpuList.Value), func(cpu int) bool { return has != nil && !slices.Contains(has, cpu) }) {
		j.addWrong("reservedSystemCPUs is "+j.cpuList.Value+", but the machine has CPUs "+strings.TrimSpace(online), j.cpuList)
	}
	return nil
}

// mapEntries returns the entries of a map in kubelet's configuration, or of its flag, which
// replaces the whole map.
func mapEntries(k config.Kubelet, setting, flag, between string) map[string]config.KubeletValue {
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

// parseQuantity returns the value of a Kubernetes quantity, such as 500m or 1.5Gi. It accepts every
// quantity that Kubernetes accepts (parseQuantityString and suffixHandler in apimachinery's
// pkg/api/resource, a package too large to import for this).
func parseQuantity(text string) (value float64, valid bool) {
	m := regexp.MustCompile(`^[+-]?([0-9]*\.?[0-9]*)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$`).FindStringSubmatch(text)
	if m == nil || text == "" {
		return 0, false
	}
	number, suffix := m[1], m[2]
	value, _ = strconv.ParseFloat("0"+number, 64) // the pattern allows only numbers
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
	value = min(value, math.MaxInt64) // the largest quantity in Kubernetes
	if text[0] == '-' {
		value = -value
	}
	return value, true
}
