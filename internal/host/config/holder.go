package config

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// holder is a program that contains kubelet or starts its own, and the places from which it takes kubelet's options.
type holder struct {
	units     []string
	arguments string // a file with one flag a line
	own       string // k3s' and RKE2's own configuration, with kubelet-arg
	configs   []string
	dropIns   string
	flags     []string // which the program gives kubelet
}

// holders returns the known ones. Sources: k3s' kubelet.conf.d since 1.32 (k3s#2116) and RKE2's (rke2#4043), get in k3s'
// pkg/agent/config; pkg/component/worker of k0s; https://microk8s.io/docs/configuring-services; Canonical Kubernetes' snap (k8s/lib.sh).
func holders() []holder {
	rancher := func(name string, units ...string) holder {
		agent := "/var/lib/rancher/" + name + "/agent/"
		return holder{units: units, own: "/etc/rancher/" + name + "/config.yaml", dropIns: agent + "etc/kubelet.conf.d",
			flags: []string{"--kubeconfig=" + agent + "kubelet.kubeconfig"}}
	}
	return []holder{
		rancher("k3s", "k3s.service", "k3s-agent.service"),
		rancher("rke2", "rke2-server.service", "rke2-agent.service"),
		{units: []string{"k0sworker.service", "k0scontroller.service"},
			configs: []string{"/var/lib/k0s/kubelet-config.yaml", "/run/k0s/kubelet/config.yaml"},
			flags:   []string{"--kubeconfig=/var/lib/k0s/kubelet.conf", "--cert-dir=/var/lib/k0s/kubelet/pki", "--root-dir=/var/lib/k0s/kubelet"}},
		{units: []string{"snap.microk8s.daemon-kubelite.service", "snap.microk8s.daemon-kubelet.service"},
			arguments: "/var/snap/microk8s/current/args/kubelet"},
		{units: []string{"snap.k8s.kubelet.service"}, arguments: "/var/snap/k8s/common/args/kubelet"},
		{units: []string{"snap.kubelet.daemon.service"}, arguments: "/var/snap/kubelet/current/args"},
		{units: []string{"snap.kubelet-eks.daemon.service"}, arguments: "/var/snap/kubelet-eks/current/args"},
	}
}

// findHolder returns the program that contains kubelet on this machine and its unit, or "". RKE2's package has two units, of which one is
// enabled.
func findHolder(files Files) (found holder, unit string) {
	for _, h := range holders() {
		for _, name := range h.units {
			f, masked, err := First(files, Dirs("systemd/system"), name)
			if err != nil || f.Path == "" || masked { // an older recording does not know whether there is one
				continue
			}
			if _, err := files.ReadLink("/etc/systemd/system/multi-user.target.wants/" + name); err == nil {
				return h, name
			}
			if unit == "" {
				found, unit = h, name
			}
		}
	}
	return found, unit
}

// readHolder reads kubelet's options from the program that contains it on this machine. It returns the unit of that program, or "", and
// the configuration files and directories.
func (k *Kubelet) readHolder(files Files) (unit string, configs, dirs []string, err error) {
	h, name := findHolder(files)
	if name == "" {
		return "", nil, nil, nil
	}
	k.Found = true
	command := k.holderCommand(files, name)
	if k.Holder == "" {
		h.flags = nil
	}
	words := arguments(name, h.flags)
	if h.own != "" {
		k.Renews = k.Holder != ""
		k.Values["failSwapOn"] = KubeletValue{"false", Source{name, "--fail-swap-on=false"}}
		words = append(words, k3sKubelet(files, h.own, command)...)
		dirs = []string{h.dropIns}
	}
	if h.arguments != "" {
		text, _, err := ReadIfAny(files, h.arguments)
		if err != nil {
			return "", nil, nil, err
		}
		snap := "/var/snap/" + strings.Split(name, ".")[1] // the snap's service has these variables
		expanded := strings.NewReplacer("${SNAP_DATA}", snap+"/current", "$SNAP_DATA", snap+"/current",
			"${SNAP_COMMON}", snap+"/common", "$SNAP_COMMON", snap+"/common").Replace(string(text))
		words = append(words, arguments(h.arguments, SplitWords(expanded))...)
	}
	for _, extra := range flagValues(command, "--kubelet-extra-args") { // of k0s
		words = append(words, arguments(name, SplitWords(extra))...)
	}
	k.commandFlags(words)
	return name, h.configs, dirs, nil
}

// holderCommand returns the command line of the unit of a program that contains kubelet, and its variables that name the node. If it is
// known, so are kubelet's options.
func (k *Kubelet) holderCommand(files Files, name string) (words []string) {
	unit, err := WithDropIns(files, Dirs("systemd/system"), name)
	command, environment, unknown, errStart := startCommand(files, unit, name)
	if err = cmp.Or(err, errStart); err != nil { // an older recording
		unknown = name + " cannot be read: " + err.Error()
	}
	if k.Unknown = unknown; unknown != "" {
		return nil
	}
	words = []string{"--hostname-override=" + cmp.Or(environment["K3S_NODE_NAME"].text, environment["RKE2_NODE_NAME"].text)}
	for _, w := range command {
		words = append(words, w.text)
	}
	k.Holder, k.Unknown = name, name+" runs a program that contains kubelet" // whose arguments may hold a token
	return words
}

// k3sKubelet returns the flags that k3s or RKE2 gives kubelet according to its configuration and its command line.
func k3sKubelet(files Files, own string, command []string) (words []argument) {
	for _, name := range append(flagValues(command, "--hostname-override"), k3sOptions(files, own, command, "node-name")...) {
		words = append(words, argument{"--hostname-override=" + name, own})
	}
	if values := k3sOptions(files, own, command, "node-ip"); values != nil {
		words = append(words, argument{"--node-ip=" + strings.Join(values, ","), own})
	}
	if k3sOptions(files, own, command, "with-node-id") != nil || slices.Contains(command, "--with-node-id") {
		words = append(words, argument{"--hostname-override=$ID", own})
	}
	for _, flag := range k3sOptions(files, own, command, "kubelet-arg") {
		words = append(words, argument{"--" + strings.TrimPrefix(flag, "--"), own})
	}
	return words
}

// rewritten matches the files of kubelet.conf.d that k3s and RKE2 write at each start.
var rewritten = regexp.MustCompile(`^/var/lib/rancher/.*/kubelet\.conf\.d/(00-(k3s|rke2)-defaults\.|10-cli-config\.|20-cli-config-dir/)`)
