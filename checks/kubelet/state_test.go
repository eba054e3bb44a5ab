package kubelet_test

import (
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// TestStateScript: a recording holds no script, so whether one replaces the state is unknown there.
func TestStateScript(t *testing.T) {
	const cpu, script = "/var/lib/kubelet/cpu_manager_state", "/usr/local/bin/prepare"
	m := withUnit("--config="+kubeadmConfig, map[string]string{
		kubeadmConfig: header + "cpuManagerPolicy: static\n", cpu: `{"policyName":"none"}`, script: "#!/bin/sh\nrm -f " + cpu + " # S3cret\n",
		"/etc/systemd/system/kubelet.service.d/05.conf": "[Service]\nExecStartPre=" + script + "\n",
	})
	recording, snapshot := host.Record(m.Host())
	for _, c := range []struct {
		what, want string
		host       *host.Host
	}{{"live", "pass", m.Host()}, {"recording", "unknown", recording}, {"replay", "unknown", host.Replay(snapshot)}} {
		if got := checkstest.Text(checkstest.On(t.Context(), t, c.host, checks.Boot, "kubelet.state", "")); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s", c.what, got)
		}
	}
}

func TestState(t *testing.T) {
	const cpu, memory, pods = "/data/cpu_manager_state", "/data/memory_manager_state", "/data/allocated_pods_state"
	const devices = "/data/dra_manager_state"
	node := func(config string, files map[string]string) *hosttest.Machine {
		all := with(with(files, kubeadmConfig, header+config), "/sys/devices/system/cpu/online", "0-3\n")
		m := withUnit("--config="+kubeadmConfig+" --root-dir=/data", all)
		m.Version = map[string]string{"/usr/bin/kubelet": "Kubernetes v1.37.2"}
		return m
	}
	cpus := func(text string) map[string]string { return map[string]string{cpu: text} }
	const (
		right = "\npass\nwant: state that kubelet accepts\ngot: state that kubelet accepts"
		none  = `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`
		fixed = "cpuManagerPolicy: static\n"
		said  = "\nevidence: /var/lib/kubelet/config.yaml: cpuManagerPolicy: static"
	)
	wrong := func(got, seen string) string {
		file, _, _ := strings.Cut(got, " ")
		return "\nfail\nwant: state that kubelet accepts\ngot: " + got + "\nevidence: " + seen +
			"\nremedy: drain the node, then run `systemctl stop kubelet.service; rm " + file + "; systemctl start kubelet.service`; kubelet creates a new file"
	}
	static := func(cpus string) string { return `{"policyName":"static","defaultCpuSet":"` + cpus + `","checksum":1}` }
	shared := `{"policyName":"static","defaultCpuSet":"0,3","entries":{"uid":{"a":"1-2"}},"checksum":1}`
	old := node("", map[string]string{pods: ""})
	old.Version["/usr/bin/kubelet"] = "Kubernetes v1.32.0"
	noDevices := node("", map[string]string{devices: ""})
	noDevices.Version["/usr/bin/kubelet"] = "Kubernetes v1.33.9"
	cleaned := func(dropIn, line string) *hosttest.Machine {
		return node(fixed, map[string]string{cpu: none, "/etc/systemd/system/kubelet.service.d/" + dropIn: "[Service]\nExecStartPre=" + line + "\n"})
	}
	checkstest.RunOne(t, "kubelet.state", checks.Boot, []checkstest.Case{
		{What: "removed by a drop-in after the gate", Node: cleaned("20-cpu.conf", "/bin/rm -f "+cpu),
			Want: right + "\nevidence: /etc/systemd/system/kubelet.service.d/20-cpu.conf:2: replaces " + cpu + " before kubelet starts"},
		{What: "another file is removed", Node: cleaned("20-cpu.conf", "/bin/rm -f "+memory),
			Want: wrong(cpu+" was saved with policy none, but kubelet has static", cpu+": policyName none"+said)},
		{What: "none yet", Node: node("", nil), Want: right},
		{What: "defaults", Node: node("", map[string]string{cpu: none, memory: `{"policyName":"None","machineState":{},"checksum":1}`,
			pods: `{"data":"{}","checksum":1}`}), Want: right},
		{What: "the policy was changed", Node: node(fixed, cpus(none)),
			Want: wrong(cpu+" was saved with policy none, but kubelet has static", cpu+": policyName none"+said)},
		{What: "the memory manager's policy was changed", Node: node("", map[string]string{memory: `{"policyName":"Static"}`}),
			Want: wrong(memory+" was saved with policy Static, but kubelet has None", memory+": policyName Static")},
		{What: "its gate is off", Node: node("featureGates: {MemoryManager: false}\n", map[string]string{memory: ""}), Want: right},
		{What: "kubelet 1.37, whose data field counts", Node: node(fixed, cpus(
			`{"policyName":"static","defaultCpuSet":"0-7","data":"{\"policyName\":\"static\",\"defaultCpuSet\":\"0-3\"}","dataChecksum":1}`)), Want: right},
		{What: "Pods own some of the CPUs", Node: node(fixed, cpus(shared)), Want: right},
		{What: "no CPUs yet", Node: node(fixed, cpus(static(""))), Want: right},
		{What: "the machine was made smaller", Node: node(fixed, cpus(static("0-7"))),
			Want: wrong(cpu+" has 8 CPUs, but the machine has CPUs 0-3", cpu+": policyName static, defaultCpuSet 0-7"+said)},
		{What: "reserved CPUs are excluded", Node: node(fixed+"cpuManagerPolicyOptions: {strict-cpu-reservation: \"true\"}\n", cpus(static("1-3"))),
			Want: right},
		{What: "an empty file", Node: node("", cpus("")), Want: wrong(cpu+" is damaged", cpu+": empty")},
		{What: "a power cut", Node: node("", cpus("\x00\x00")), Want: wrong(cpu+" is damaged", cpu+": not JSON")},
		{What: "an empty Pod state", Node: node("", map[string]string{pods: ""}), Want: wrong(pods+" is damaged", pods+": empty")},
		{What: "an empty Pod state that kubelet does not read", Node: old, Want: right},
		{What: "an empty device state", Node: node("", map[string]string{devices: ""}), Want: wrong(devices+" is damaged", devices+": empty")},
		{What: "an empty device state that kubelet does not read", Node: noDevices, Want: right},
		{What: "no unit", Node: checkstest.Node(map[string]string{kubeadmConfig: header + fixed, "/var/lib/kubelet/cpu_manager_state": none}, nil),
			Want: "skipped\nskipped: kubelet's command line is unknown: kubelet.service has 0 commands"},
	})
}
