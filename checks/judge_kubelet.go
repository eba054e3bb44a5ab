package checks

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"nodegate/internal/host"
	"nodegate/internal/host/config"
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

// boolean is the value of a flag that needs none: what follows is not its own.
func (v kubeletValue) boolean() kubeletValue {
	on, valid := config.ParseBool(v.value)
	v.value = strconv.FormatBool(on || !valid)
	return v
}

// readKubelet reads every place where kubeadm, kops, EKS and the packages put
// kubelet's arguments and configuration. Files of a configuration directory
// override the configuration, arguments override both.
func readKubelet(h *host.Host) (kubelet, error) {
	k := kubelet{values: map[string]kubeletValue{}}
	configs := []string{
		"/var/lib/kubelet/config.yaml", "/var/lib/kubelet/kubelet.conf", "/etc/kubernetes/kubelet/config.json",
		"/etc/kubernetes/kubelet/kubelet-config.json", "/etc/kubernetes/kubelet-config.yaml", "/etc/kubernetes/kubelet.yaml",
	}
	dirs := []string{"/etc/kubernetes/kubelet.conf.d", "/etc/kubernetes/kubelet/config.json.d"}
	files, err := k.argumentFiles(h)
	if err != nil {
		return k, err
	}
	arguments := map[string]kubeletValue{}
	for _, f := range files {
		for flag, value := range config.Flags(string(f.Text)) {
			said := kubeletValue{value, Evidence{f.Path, "--" + flag + "=" + value}}
			switch flag {
			case "config":
				configs = append(slices.DeleteFunc(configs, func(c string) bool { return c == value }), value)
			case "config-dir":
				dirs = append(slices.DeleteFunc(dirs, func(d string) bool { return d == value }), value)
			case "fail-swap-on":
				arguments["failSwapOn"] = said.boolean()
			case "protect-kernel-defaults":
				arguments["protectKernelDefaults"] = said.boolean()
			}
		}
	}
	for _, dir := range dirs {
		names, err := readDirIfAny(h, dir)
		if err != nil {
			return k, err
		}
		for _, name := range names {
			if strings.HasSuffix(name, ".conf") {
				configs = append(configs, dir+"/"+name)
			}
		}
	}
	for _, name := range configs {
		if err := k.readConfig(h, name); err != nil {
			return k, err
		}
	}
	maps.Copy(k.values, arguments)
	return k, nil
}

// argumentFiles is kubelet's unit with its drop-ins, and the files of variables
// that units of the distributions read.
func (k *kubelet) argumentFiles(h *host.Host) ([]config.File, error) {
	files, err := config.WithDropIns(h.Files, config.Dirs("systemd/system"), "kubelet.service")
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet"} {
		text, found, err := readIfAny(h, name)
		if err != nil {
			return nil, err
		}
		if found {
			k.found = true
			files = append(files, config.File{Path: name, Text: text})
		}
	}
	return files, nil
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
