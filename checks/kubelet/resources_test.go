package kubelet_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

func TestResources(t *testing.T) {
	node := func(arguments, config string) *hosttest.Machine {
		return withUnit("--config="+kubeadmConfig+" "+arguments, map[string]string{kubeadmConfig: header + config,
			"/proc/meminfo": "MemTotal:        2097152 kB\nMemFree: 1 kB\n", "/sys/devices/system/cpu/online": "0-1\n"})
	}
	const right = "\npass\nwant: resources that kubelet can reserve\ngot: resources that kubelet can reserve"
	wrong := func(got, seen string) string {
		return "\nfail\nwant: resources that kubelet can reserve\ngot: " + got + seen +
			"\nremedy: correct the named setting; quantities look like 500Mi, 2Gi or 250m"
	}
	const inFile, inUnit = "\nevidence: /var/lib/kubelet/config.yaml: ", "\nevidence: /usr/lib/systemd/system/kubelet.service: "
	checkstest.RunOne(t, "kubelet.resources", checks.Boot, []checkstest.Case{
		{What: "none", Node: node("", ""), Want: right},
		{What: "EKS", Node: node("", "kubeReserved: {cpu: 70m, memory: 442Mi, ephemeral-storage: 1Gi}\nevictionHard: {memory.available: 100Mi, "+
			"nodefs.available: 10%, nodefs.inodesFree: 5%}\n"), Want: right},
		{What: "every quantity", Node: node("--system-reserved=cpu=.5,memory=1e6,pid=1k --eviction-hard=memory.available<1.5Mi,a.b<0%",
			"kubeReserved: {memory: 1.Mi, cpu: +1u, pid: 1E-2}\ncpuManagerPolicy: static\n"), Want: right},
		{What: "a flag replaces the file's map", Node: node("--kube-reserved memory=1Gi", "kubeReserved: {memory: 9Gi, foo: 1}\n"), Want: right},
		{What: "a percentage in the unit, doubled for systemd", Node: node("--eviction-hard=nodefs.available<10%%", ""), Want: right},
		{What: "all of the memory", Node: node("", "kubeReserved: {memory: 1Gi}\nsystemReserved: {memory: 1024Mi}\n"), Want: right},
		{What: "more than all, with eviction", Node: node("", "kubeReserved: {memory: 1Gi}\nsystemReserved: {memory: 1024Mi}\n"+
			"evictionHard: {memory.available: 100Mi}\n"), Want: wrong("2148 MiB of memory are reserved, but the machine has 2048 MiB",
			inFile+"kubeReserved.memory: 1Gi"+inFile+"systemReserved.memory: 1024Mi"+inFile+"evictionHard.memory.available: 100Mi")},
		{What: "eviction is ignored", Node: node("--experimental-allocatable-ignore-eviction", "evictionHard: {memory.available: 9Gi}\n"),
			Want: right},
		{What: "invalid quantities", Node: node("--eviction-hard=memory.available<1GB", "kubeReserved: {memory: 500MB, cpu: -1}\n"),
			Want: wrong(`kubeReserved cpu "-1" is invalid; kubeReserved memory "500MB" is invalid; evictionHard memory.available "1GB" is invalid`,
				inFile+"kubeReserved.cpu: -1"+inFile+"kubeReserved.memory: 500MB"+inUnit+"--eviction-hard=memory.available<1GB")},
		{What: "a resource that cannot be reserved", Node: node("", "kubeReserved: {gpu: 1}\n"),
			Want: wrong("kubeReserved cannot reserve gpu", inFile+"kubeReserved.gpu: 1")},
		{What: "soft eviction", Node: node("", "evictionSoft: {memory.available: 5%, nodefs.available: 101%}\n"+
			"evictionSoftGracePeriod: {memory.available: 1 min}\n"), Want: wrong("evictionSoft memory.available has no "+
			"evictionSoftGracePeriod; evictionSoft nodefs.available \"101%\" is invalid", inFile+"evictionSoft.memory.available: 5%"+
			inFile+"evictionSoftGracePeriod.memory.available: 1 min"+inFile+"evictionSoft.nodefs.available: 101%")},
		{What: "more CPUs than there are", Node: node("--system-reserved=cpu=500m", "kubeReserved: {cpu: \"2\"}\n"),
			Want: wrong("2.5 CPUs are reserved, but the machine has 2", inFile+"kubeReserved.cpu: 2"+inUnit+"--system-reserved=cpu=500m")},
		{What: "as many CPUs as there are", Node: node("", "kubeReserved: {cpu: 2000m}\n"), Want: right},
		{What: "reserved CPUs", Node: node("--reserved-cpus=0", "cpuManagerPolicy: static\nkubeReserved: {cpu: 9x}\n"), Want: right},
		{What: "reserved CPUs of a larger machine", Node: node("", "reservedSystemCPUs: 0,2-3\n"),
			Want: wrong("reservedSystemCPUs is 0,2-3, but the machine has CPUs 0-1", inFile+"reservedSystemCPUs: 0,2-3")},
		{What: "no reserved CPU", Node: node("", "cpuManagerPolicy: static\nkubeReserved: {cpu: \"0\"}\n"),
			Want: wrong("cpuManagerPolicy is static, and no CPU is reserved", inFile+"cpuManagerPolicy: static")},
		{What: "an unknown policy", Node: node("--cpu-manager-policy=Static", ""),
			Want: wrong(`cpuManagerPolicy is "Static"; it must be none or static`, inUnit+"--cpu-manager-policy=Static")},
		{What: "no unit", Node: checkstest.Node(map[string]string{kubeadmConfig: header}, nil),
			Want: "skipped\nskipped: kubelet's command line is unknown: kubelet.service has 0 commands"},
	})
}
