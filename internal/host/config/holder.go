package config

import "strings"

// holder is a program that contains kubelet, and the places from which it takes kubelet's options.
type holder struct {
	units     []string
	arguments string // a file with one flag a line
	own       string // k3s' and RKE2's own configuration, with kubelet-arg
	configs   []string
	dropIns   string
}

// holders returns the known ones. Sources: k3s' kubelet.conf.d since 1.32 (k3s#2116) and RKE2's (rke2#4043);
// https://microk8s.io/docs/configuring-services; Canonical Kubernetes' snap (k8s/lib.sh).
func holders() []holder {
	rancher := func(name string, units ...string) holder {
		return holder{units: units, own: "/etc/rancher/" + name + "/config.yaml",
			dropIns: "/var/lib/rancher/" + name + "/agent/etc/kubelet.conf.d"}
	}
	return []holder{
		rancher("k3s", "k3s.service", "k3s-agent.service"),
		rancher("rke2", "rke2-server.service", "rke2-agent.service"),
		{units: []string{"k0sworker.service", "k0scontroller.service"},
			configs: []string{"/var/lib/k0s/kubelet-config.yaml", "/run/k0s/kubelet/config.yaml"}},
		{units: []string{"snap.microk8s.daemon-kubelite.service", "snap.microk8s.daemon-kubelet.service"},
			arguments: "/var/snap/microk8s/current/args/kubelet"},
		{units: []string{"snap.k8s.kubelet.service"}, arguments: "/var/snap/k8s/common/args/kubelet"},
		{units: []string{"snap.kubelet.daemon.service"}, arguments: "/var/snap/kubelet/current/args"},
		{units: []string{"snap.kubelet-eks.daemon.service"}, arguments: "/var/snap/kubelet-eks/current/args"},
	}
}

// readHolder reads kubelet's options from the program that contains it on this machine. It returns the unit of that program, or "", and
// the configuration files and directories.
func (k *Kubelet) readHolder(files Files) (unit string, configs, dirs []string, err error) {
	for _, h := range holders() {
		for _, name := range h.units {
			f, masked, err := First(files, Dirs("systemd/system"), name)
			if err != nil || f.Path == "" || masked { // an older recording does not know whether there is one
				continue
			}
			k.Found = true
			var words []argument
			if h.own != "" {
				for _, flag := range k3sArguments(files, h.own, "kubelet-arg") {
					words = append(words, argument{"--" + flag, h.own})
				}
			}
			if h.arguments != "" {
				text, _, err := ReadIfAny(files, h.arguments)
				if err != nil {
					return "", nil, nil, err
				}
				snap := "/var/snap/" + strings.Split(name, ".")[1] // the snap's service has these variables
				expanded := strings.NewReplacer("${SNAP_DATA}", snap+"/current", "$SNAP_DATA", snap+"/current",
					"${SNAP_COMMON}", snap+"/common", "$SNAP_COMMON", snap+"/common").Replace(string(text))
				for _, w := range SplitWords(expanded) {
					words = append(words, argument{w, h.arguments})
				}
			}
			k.commandFlags(words)
			if h.dropIns != "" {
				dirs = []string{h.dropIns}
			}
			return name, h.configs, dirs, nil
		}
	}
	return "", nil, nil, nil
}
