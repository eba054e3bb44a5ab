package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Kubelet is what the files of a machine say about kubelet's configuration.
type Kubelet struct {
	Values map[string]KubeletValue // by the name in KubeletConfiguration; "kubeconfig" and "bootstrap-kubeconfig" are flags
	Found  bool                    // some configuration or arguments exist
}

// KubeletValue is one setting and the place that sets it.
type KubeletValue struct {
	Value string
	From  Source
}

// Source is the place of a setting, and the text there.
type Source struct{ Source, Text string }

// boolean returns the value of a flag that needs none: the word after such a flag is
// not its value.
func (v KubeletValue) boolean() KubeletValue {
	on, valid := ParseBool(v.Value)
	v.Value = strconv.FormatBool(on || !valid)
	return v
}

// ReadKubelet reads every place where kubeadm, kops, EKS and the packages put
// kubelet's arguments and configuration. Files of a configuration directory
// override the configuration, arguments override both.
func ReadKubelet(files Files) (Kubelet, error) {
	k := Kubelet{Values: map[string]KubeletValue{}}
	configs := []string{
		"/var/lib/kubelet/config.yaml", "/var/lib/kubelet/kubelet.conf", "/etc/kubernetes/kubelet/config.json",
		"/etc/kubernetes/kubelet/kubelet-config.json", "/etc/kubernetes/kubelet-config.yaml", "/etc/kubernetes/kubelet.yaml",
	}
	dirs := []string{"/etc/kubernetes/kubelet.conf.d", "/etc/kubernetes/kubelet/config.json.d"}
	units, err := k.argumentFiles(files)
	if err != nil {
		return k, err
	}
	arguments := map[string]KubeletValue{}
	for _, f := range units {
		for flag, value := range Flags(string(f.Text)) {
			said := KubeletValue{value, Source{f.Path, "--" + flag + "=" + value}}
			switch flag {
			case "config":
				configs = append(slices.DeleteFunc(configs, func(c string) bool { return c == value }), value)
			case "config-dir":
				dirs = append(slices.DeleteFunc(dirs, func(d string) bool { return d == value }), value)
			case "container-runtime-endpoint":
				arguments["containerRuntimeEndpoint"] = said
			case "kubeconfig", "bootstrap-kubeconfig":
				arguments[flag] = said
			case "fail-swap-on":
				arguments["failSwapOn"] = said.boolean()
			case "protect-kernel-defaults":
				arguments["protectKernelDefaults"] = said.boolean()
			}
		}
	}
	for _, dir := range dirs {
		names, err := readDirIfAny(files, dir)
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
		if err := k.readConfig(files, name); err != nil {
			return k, err
		}
	}
	maps.Copy(k.Values, arguments)
	return k, nil
}

// argumentFiles returns kubelet's unit with its drop-ins, and the files of variables
// that the units of distributions read.
func (k *Kubelet) argumentFiles(files Files) ([]File, error) {
	found, err := WithDropIns(files, Dirs("systemd/system"), "kubelet.service")
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet"} {
		text, exists, err := readOptional(files, name)
		if err != nil {
			return nil, err
		}
		if exists {
			k.Found = true
			found = append(found, File{Path: name, Text: text})
		}
	}
	return found, nil
}

// readConfig reads the scalars of a KubeletConfiguration. JSON is YAML too.
func (k *Kubelet) readConfig(files Files, name string) error {
	text, found, err := readOptional(files, name)
	if err != nil || !found {
		return err
	}
	k.Found = true
	var settings map[string]any
	if err := yaml.Unmarshal(text, &settings); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	for key, v := range settings {
		switch v.(type) {
		case bool, string, int:
			value := fmt.Sprint(v)
			k.Values[key] = KubeletValue{value, Source{name, key + ": " + value}}
		}
	}
	return nil
}

// KernelDefaults are the values that kubelet's protectKernelDefaults demands, in
// the order in which kubelet names them.
func KernelDefaults() [][2]string {
	return [][2]string{
		{"vm/overcommit_memory", "1"}, {"vm/panic_on_oom", "0"}, {"kernel/panic", "10"},
		{"kernel/panic_on_oops", "1"}, {"kernel/keys/root_maxkeys", "1000000"}, {"kernel/keys/root_maxbytes", "25000000"},
	}
}

// readDirIfAny lists a directory that may be absent.
func readDirIfAny(files Files, dir string) ([]string, error) {
	names, err := files.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// readOptional reads a file that may be absent.
func readOptional(files Files, name string) (text []byte, found bool, err error) {
	text, err = files.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return text, err == nil, err
}
