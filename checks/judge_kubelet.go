package checks

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"nodegate/host"
)

// kubelet is what this machine's files say about kubelet's configuration.
type kubelet struct {
	values map[string]kubeletValue // by the name in KubeletConfiguration
	found  bool                    // some configuration or arguments are there
}

type kubeletValue struct {
	value string
	from  Evidence
}

// readKubelet reads every place where kubeadm, kops, EKS and the packages put
// kubelet's arguments and configuration. An argument overrides the file.
func readKubelet(h *host.Host) (kubelet, error) {
	k := kubelet{values: map[string]kubeletValue{}}
	configs := []string{
		"/var/lib/kubelet/config.yaml", "/var/lib/kubelet/kubelet.conf", "/etc/kubernetes/kubelet/config.json",
		"/etc/kubernetes/kubelet/kubelet-config.json", "/etc/kubernetes/kubelet-config.yaml", "/etc/kubernetes/kubelet.yaml",
	}
	arguments := map[string]kubeletValue{}
	for _, name := range []string{"/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet"} {
		text, found, err := readIfAny(h, name)
		if err != nil {
			return k, err
		}
		k.found = k.found || found
		for flag, value := range flagsIn(string(text)) {
			switch flag {
			case "config":
				if !slices.Contains(configs, value) {
					configs = append(configs, value)
				}
			case "fail-swap-on":
				arguments["failSwapOn"] = kubeletValue{value, Evidence{name, "--" + flag + "=" + value}}
			case "protect-kernel-defaults":
				arguments["protectKernelDefaults"] = kubeletValue{value, Evidence{name, "--" + flag + "=" + value}}
			}
		}
	}
	for _, name := range configs {
		if err := k.readConfig(h, name); err != nil {
			return k, err
		}
	}
	for key, v := range arguments {
		k.values[key] = v
	}
	return k, nil
}

// readConfig takes the scalars of a KubeletConfiguration. JSON is YAML too.
func (k *kubelet) readConfig(h *host.Host, name string) error {
	text, found, err := readIfAny(h, name)
	if err != nil || !found {
		return err
	}
	k.found = true
	var settings map[string]any
	if err := yaml.Unmarshal(text, &settings); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	for key, v := range settings {
		switch v.(type) {
		case bool, string, int:
			value := fmt.Sprint(v)
			k.values[key] = kubeletValue{value, Evidence{name, key + ": " + value}}
		}
	}
	return nil
}

// flagsIn yields the --flag=value and --flag of an environment file.
func flagsIn(text string) func(yield func(flag, value string) bool) {
	return func(yield func(flag, value string) bool) {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(strings.TrimSpace(line), "#") {
				continue
			}
			words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'", r) })
			for i, w := range words {
				_, rest, isFlag := strings.Cut(w, "--")
				flag, value, assigned := strings.Cut(rest, "=")
				switch {
				case assigned:
				case i+1 < len(words) && !strings.Contains(words[i+1], "--"):
					value = words[i+1]
				default:
					value = "true"
				}
				if isFlag && !yield(flag, value) {
					return
				}
			}
		}
	}
}
