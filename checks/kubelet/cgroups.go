package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/internal/host/service"
	"nodegate/policy"
)

// cgroups: kubelet exits if a cgroup that its configuration names does not exist, or if cgroup v1 lacks a controller.
func cgroups() checks.Problem {
	return checks.Problem{
		Name: "kubelet.cgroups", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "A cgroup that kubelet's configuration names does not exist, or the machine lacks a cgroup controller that kubelet needs.",
		Symptom: "kubelet restarts forever: \"Failed to enforce Kube Reserved Cgroup Limits on \\\"/kube.slice\\\"\", \"invalid configuration: " +
			"could not read controllers for cgroup\" or \"system validation failed - Following Cgroup subsystem not mounted: [memory]\".",
		How: "cgroupRoot must exist unless cgroupsPerQOS is off; so must kubeReservedCgroup and systemReservedCgroup if " +
			"enforceNodeAllocatable contains kube-reserved or system-reserved. The names are translated for the cgroup driver that kubelet " +
			"will use, and a slice in which kubelet's unit itself runs exists in time. On cgroup v1, cpu, cpuacct, cpuset and memory must be " +
			"mounted. On cgroup v2 the check only warns if /sys/fs/cgroup/cgroup.controllers lacks cpu or memory: kubelet runs, and Pods have " +
			"no limits. Skipped if the command line of kubelet's unit is unknown.",
		Remedy: "create the cgroup before kubelet starts, or remove its name from enforceNodeAllocatable",
		Ref:    "https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/#general-guidelines",
		Inspect: func(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectCgroups(ctx, h)
		},
	}
}

// cgroupJudge looks for cgroups below one or several hierarchies.
type cgroupJudge struct {
	h       *host.Host
	k       config.Kubelet
	s       *checks.State
	drivers []string // the driver that kubelet will use; both if that is unknown
	mounts  []string // the hierarchies in which each cgroup must exist
	mends   service.Mend
	slice   string // the slice of kubelet's unit
	wrong   []string

	v2          bool
	controllers []string // of the root, on cgroup v2
	minor       int      // of kubelet, if a name is judged
}

func inspectCgroups(ctx context.Context, h *host.Host) (checks.State, error) {
	s := checks.Passing("the cgroups and controllers that kubelet needs")
	k, known, err := readConfigAndCommand(h, &s)
	if !known {
		return s, err
	}
	j := cgroupJudge{h: h, k: k, s: &s}
	unit, err := service.Read(h.Files, "kubelet.service")
	if err != nil {
		return s, err
	}
	j.mends = unit.Mends(h.Files)
	slice, _ := config.Last(unit.Entries, "Service", "Slice")
	j.slice = expandSlice(cmp.Or(slice.Value, "system.slice"))
	mounted, err := cgroupMount(h)
	if err != nil {
		return s, err
	}
	lacks, remedy, err := j.findControllers(mounted == "cgroup2")
	if err != nil {
		return s, err
	}
	if err := j.judgeNames(ctx); err != nil {
		return s, err
	}
	switch {
	case j.wrong != nil && lacks != "":
		s.Differs(strings.Join(append(j.wrong, lacks), "; "), "")
	case j.wrong != nil:
		s.Differs(strings.Join(j.wrong, "; "), "")
	case lacks != "":
		s.Differs(lacks, remedy)
		if mounted != "cgroup2" {
			s.Cause = "kubelet.cgroup-v1" // if that kubelet refuses cgroup v1 at all
		}
		s.Minor = mounted == "cgroup2" // kubelet starts, unless it must enforce a reservation: see judgeNames
	}
	return s, nil
}

// findControllers sets the hierarchies, and returns the controllers that are missing (validateSystemRequirements in
// pkg/kubelet/cm/container_manager_linux.go).
func (j *cgroupJudge) findControllers(v2 bool) (lacks, remedy string, err error) {
	if j.v2 = v2; v2 {
		j.mounts = []string{"/sys/fs/cgroup"}
		text, err := j.h.Text("/sys/fs/cgroup/cgroup.controllers")
		j.controllers = strings.Fields(text)
		if err != nil || j.k.Values["cgroupsPerQOS"].Value == "false" {
			return "", "", err
		}
		missing := slices.DeleteFunc([]string{"cpu", "memory"}, func(c string) bool { return slices.Contains(j.controllers, c) })
		if len(missing) == 0 {
			return "", "", nil
		}
		j.s.Evidence = append(j.s.Evidence, checks.Seen("/sys/fs/cgroup/cgroup.controllers", cmp.Or(strings.TrimSpace(text), "empty")))
		return "cgroup v2 without " + strings.Join(missing, ", "), "remove cgroup_disable= and cgroup_no_v1= from the kernel command line; if " +
			"cgroup v1 has mounted the controller elsewhere, boot with systemd.unified_cgroup_hierarchy=1", nil
	}
	needed := []string{"cpu", "cpuacct", "cpuset", "memory"}
	used := append(slices.Clone(needed), "pids", "hugetlb", "name=systemd") // Validate in cgroup_v1_manager_linux.go ignores all others
	text, err := j.h.Text("/proc/mounts")
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > 1 && f[1] == "/sys/fs/cgroup" { // it hides what was mounted below before
			j.mounts, needed = nil, []string{"cpu", "cpuacct", "cpuset", "memory"}
		}
		if len(f) < 4 || f[2] != "cgroup" {
			continue
		}
		options := strings.Split(f[3], ",")
		if slices.ContainsFunc(options, func(o string) bool { return slices.Contains(used, o) }) {
			j.mounts = append(j.mounts, f[1])
		}
		needed = slices.DeleteFunc(needed, func(c string) bool { return slices.Contains(options, c) })
	}
	if len(needed) == 0 {
		return "", "", nil
	}
	j.s.Evidence = append(j.s.Evidence, checks.Seen("/proc/mounts", "no cgroup v1 mount with "+strings.Join(needed, ", ")))
	return "cgroup v1 without " + strings.Join(needed, ", "), "boot with cgroup_enable=memory and without cgroup_disable= on the kernel " +
		"command line, or change to cgroup v2: systemd.unified_cgroup_hierarchy=1", nil
}

// judgeNames looks for the cgroups that the configuration names (NewContainerManager and enforceNodeAllocatableCgroups in
// pkg/kubelet/cm).
func (j *cgroupJudge) judgeNames(ctx context.Context) error {
	enforced := strings.Split(j.k.Values["enforceNodeAllocatable"].Value, ",")
	var named []string
	if root := j.k.Values["cgroupRoot"].Value; root != "" && j.k.Values["cgroupsPerQOS"].Value != "false" {
		named = append(named, "cgroupRoot")
	}
	for _, n := range [][2]string{{"kube-reserved", "kubeReservedCgroup"}, {"system-reserved", "systemReservedCgroup"}} {
		if slices.Contains(enforced, n[0]) || slices.Contains(enforced, n[0]+"-compressible") {
			named = append(named, n[1])
		}
	}
	if j.k.Values["systemCgroups"].Value == "/" { // setupNode
		j.addWrong("systemCgroups must not be /", "systemCgroups")
	}
	for _, setting := range named {
		if j.k.Values[setting].Value == "" {
			continue // kubelet.values reports it
		}
		if j.drivers == nil {
			if err := j.findDrivers(ctx); err != nil {
				return err
			}
		}
		dir, err := j.findMissing(setting)
		if err != nil {
			return err
		}
		if dir != "" {
			j.addWrong(fmt.Sprintf("%s is %s, but %s does not exist", setting, j.k.Values[setting].Value, dir), setting, "enforceNodeAllocatable")
		} else if err := j.judgeControllers(setting); err != nil {
			return err
		}
	}
	return nil
}

// judgeControllers judges a cgroup that exists on cgroup v2. cgroupRoot needs every controller that kubelet uses and the root has
// (Validate in cgroup_v2_manager_linux.go). A reservation is written to its cgroup, whose controllers kubelet enables before, but
// cannot if the root lacks them.
func (j *cgroupJudge) judgeControllers(setting string) error {
	if !j.v2 {
		return nil
	}
	if setting == "cgroupRoot" {
		name := cgroupName(j.k.Values[setting].Value, true, j.drivers[0])
		text, err := j.h.Text(path.Join("/sys/fs/cgroup", name, "cgroup.controllers"))
		if len(j.drivers) > 1 || err != nil && j.mends.Writes(path.Join("/sys/fs/cgroup", name)) != "" {
			return nil
		}
		used := []string{"cpu", "cpuset", "memory", "hugetlb", "pids"}
		lacks := slices.DeleteFunc(used, func(c string) bool {
			return !slices.Contains(j.controllers, c) || slices.Contains(strings.Fields(text), c)
		})
		if err == nil && len(lacks) > 0 {
			j.addWrong(fmt.Sprintf("cgroupRoot %s lacks the controllers %s", j.k.Values[setting].Value, strings.Join(lacks, ", ")), setting)
		}
		return err
	}
	reserved := strings.TrimSuffix(setting, "Cgroup")
	key := strings.Replace(reserved, "Reserved", "-reserved", 1)
	amounts := mapEntries(j.k, reserved, key, "=")
	whole := slices.Contains(strings.Split(j.k.Values["enforceNodeAllocatable"].Value, ","), key) // not only what can be compressed
	needed := slices.DeleteFunc([]string{"cpu", "cpuset", "memory"}, func(c string) bool {
		switch c {
		case "cpuset": // getCgroupConfig writes the set of all CPUs; 1.31 does not
			return len(amounts) == 0 || j.k.Values["cpuManagerPolicy"].Value == "static" || j.minor < 35
		case "memory":
			return !whole || amounts[c].Value == ""
		}
		return amounts[c].Value == ""
	})
	for _, c := range needed {
		if !slices.Contains(j.controllers, c) {
			j.addWrong(fmt.Sprintf("%s cannot be enforced without the controller %s", reserved, c), setting, "enforceNodeAllocatable")
		}
	}
	return nil
}

func (j *cgroupJudge) addWrong(why string, settings ...string) {
	j.wrong = append(j.wrong, why)
	for _, name := range settings {
		addSeen(j.s, j.k.Values[name])
	}
}

// findDrivers asks the runtime for the cgroup driver as kubelet 1.31 and later do (getCgroupDriverFromCRI in
// cmd/kubelet/app/server.go).
func (j *cgroupJudge) findDrivers(ctx context.Context) error {
	j.drivers = []string{cmp.Or(j.k.Values["cgroupDriver"].Value, "cgroupfs")}
	var err error
	if j.minor, err = j.h.KubeletMinor(ctx); err != nil || j.minor > 0 && j.minor < 31 || j.h.Runtimes == nil {
		return err
	}
	runtime, err := j.h.Runtimes.CgroupDriver(ctx, socketPath(cmp.Or(j.k.Values["containerRuntimeEndpoint"].Value, containerdSocket)))
	switch {
	case errors.Is(err, errors.ErrUnsupported): // then kubelet uses its own
	case err != nil: // kubelet.runtime reports it
		j.drivers = []string{"systemd", "cgroupfs"}
	case runtime.Told:
		j.drivers = []string{runtime.Driver}
	}
	return nil
}

// findMissing returns a directory of a setting's cgroup that does not exist, "" if all exist or will exist in time.
func (j *cgroupJudge) findMissing(setting string) (missing string, err error) {
	for _, driver := range j.drivers {
		name := cgroupName(j.k.Values[setting].Value, setting == "cgroupRoot", driver)
		missing = ""
		for _, mount := range j.mounts {
			dir := path.Join(mount, name)
			exists, err := j.h.Files.Exists(dir)
			if err != nil {
				return "", err
			}
			if at := j.mends.Writes(dir); !exists && at != "" {
				j.s.Evidence = append(j.s.Evidence, checks.Seen(at, "creates "+dir+" before kubelet starts"))
				exists = true
			}
			if !exists && !strings.HasPrefix(j.slice+"/", name+"/") {
				missing = dir
			}
		}
		if missing == "" {
			return "", nil
		}
	}
	return missing, nil
}

// cgroupName returns the path of a cgroup below its hierarchy. With the systemd driver, kubelet takes the last element of a
// reservation's name as a slice, and the elements of cgroupRoot as nested slices (CgroupName and ToSystemd in
// pkg/kubelet/cm/cgroup_manager_linux.go).
func cgroupName(name string, root bool, driver string) string {
	switch {
	case driver != "systemd" || strings.Trim(name, "/") == "":
		return path.Join("/", name)
	case root:
		return expandSlice(strings.ReplaceAll(strings.ReplaceAll(strings.Trim(name, "/"), "-", "_"), "/", "-") + ".slice")
	}
	return expandSlice(strings.TrimSuffix(path.Base(name), ".slice") + ".slice")
}

// expandSlice returns the path of a slice: a-b.slice is below a.slice.
func expandSlice(slice string) string {
	at, prefix := "", ""
	for part := range strings.SplitSeq(strings.TrimSuffix(slice, ".slice"), "-") {
		if part == "" {
			continue
		}
		prefix = strings.TrimPrefix(prefix+"-"+part, "-")
		at += "/" + prefix + ".slice"
	}
	return cmp.Or(at, "/")
}
