package config

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Kubelet is kubelet's configuration according to the machine's files.
type Kubelet struct {
	Values map[string]KubeletValue // scalars, by name in KubeletConfiguration: authentication.x509.clientCAFile
	Flags  map[string]KubeletValue // by name without --, the last value of each
	Found  bool                    // there is any configuration or argument
	// Command is kubelet's command line, beginning with the program. If it is nil, Unknown is the reason, and Holder is the unit
	// of a program that contains kubelet, whose files set all options. Without both the configuration comes from the places
	// where kubeadm, kops, EKS and the packages put arguments and configuration.
	Command []string
	Unknown string
	Holder  string
	Renews  bool     // the program of Holder gets kubelet a client certificate at each start
	Configs []string // the configuration files that the operator writes, in the order in which kubelet reads them
	DropIns string   // the --config-dir of Command
}

// KubeletValue is the value of one option and the place that sets it.
type KubeletValue struct {
	Value string
	From  Source
}

// Source is the place of an option, and its text there.
type Source struct{ Source, Text string }

// configName returns the field of KubeletConfiguration that a flag overrides.
func configName(flag string) string {
	return map[string]string{
		"address": "address", "cgroup-driver": "cgroupDriver", "container-runtime-endpoint": "containerRuntimeEndpoint",
		"fail-cgroupv1": "failCgroupV1", "fail-swap-on": "failSwapOn", "healthz-bind-address": "healthzBindAddress",
		"healthz-port": "healthzPort", "image-service-endpoint": "imageServiceEndpoint", "port": "port",
		"protect-kernel-defaults": "protectKernelDefaults", "resolv-conf": "resolvConf", "rotate-certificates": "rotateCertificates",
	}[flag]
}

// ReadKubelet reads kubelet's unit with its drop-ins and variables, and the configuration that its command line names. Drop-ins override
// the configuration, and flags override both. If a file cannot be parsed, the error comes together with the command line.
func ReadKubelet(files Files) (Kubelet, error) {
	k := Kubelet{Values: map[string]KubeletValue{}, Flags: map[string]KubeletValue{}}
	unit, err := WithDropIns(files, Dirs("systemd/system"), "kubelet.service")
	if err != nil {
		return k, err
	}
	command, unknown, err := unitCommand(files, unit)
	if err != nil {
		return k, err
	}
	var configs, dirs []string
	if k.Unknown = unknown; unknown == "" {
		k.Found = true
		for _, w := range command {
			k.Command = append(k.Command, w.text)
		}
		k.commandFlags(command[1:])
	} else {
		holder := ""
		if len(unit) == 0 {
			holder, configs, dirs, err = k.readHolder(files)
		}
		if holder == "" && err == nil {
			configs, dirs, err = k.readUsualPlaces(files, unit)
		}
		if err != nil {
			return k, err
		}
	}
	theirs := slices.Clone(configs)
	for _, named := range []struct {
		flag string
		list *[]string
	}{{"config", &configs}, {"config-dir", &dirs}} {
		if value := inWorkingDirectory(unit, k.Flags[named.flag].Value); value != "" {
			*named.list = append(slices.DeleteFunc(*named.list, func(have string) bool { return have == value }), value)
		}
	}
	for _, dir := range dirs {
		below, err := kubeletDropIns(files, dir, mostDirs)
		if err != nil {
			return k, err
		}
		configs = append(configs, below...)
	}
	if unknown == "" || k.Holder != "" {
		k.Configs = slices.DeleteFunc(slices.Clone(configs), func(name string) bool {
			return slices.Contains(theirs, name) || rewritten.MatchString(name) // the holder writes these at each start
		})
		k.DropIns = inWorkingDirectory(unit, k.Flags["config-dir"].Value)
	}
	for _, name := range configs {
		if err := k.readConfig(files, name); err != nil {
			return k, err
		}
	}
	for flag, said := range k.Flags {
		if name := configName(flag); name != "" {
			if on, is := ParseBool(said.Value); is || strings.HasPrefix(flag, "fail-") || strings.HasPrefix(flag, "protect-") {
				said.Value = strconv.FormatBool(on || !is) // the word after such a flag is not its value
			}
			k.Values[name] = said
		}
	}
	return k, nil
}

// inWorkingDirectory returns the path of a file that a command of a unit opens.
func inWorkingDirectory(unit []File, name string) string {
	if name == "" || path.IsAbs(name) {
		return name
	}
	entries, _ := ParseFiles(unit) // systemd also ignores unreadable lines
	entry, _ := Last(entries, "Service", "WorkingDirectory")
	dir := strings.TrimPrefix(entry.Value, "-")
	if dir == "~" {
		dir = "/root"
	}
	return path.Join("/", dir, name)
}

// mostDirs bounds the nesting of drop-in directories.
const mostDirs = 8

// kubeletDropIns returns the .conf files of a directory and its subdirectories, in the order in which kubelet merges them
// (mergeKubeletConfigurations in cmd/kubelet/app/server.go): sorted by path. It follows no symbolic link to a directory.
func kubeletDropIns(files Files, dir string, most int) (all []string, err error) {
	names, err := ReadDirIfAny(files, dir)
	for _, name := range names {
		at := dir + "/" + name
		if _, noLink := files.ReadLink(at); noLink != nil && most > 0 {
			if _, noDir := files.ReadDir(at); noDir == nil {
				below, err := kubeletDropIns(files, at, most-1)
				if err != nil {
					return nil, err
				}
				all = append(all, below...)
				continue
			}
		}
		if strings.HasSuffix(name, ".conf") {
			all = append(all, at)
		}
	}
	return all, err
}

// commandFlags reads the flags on a command line.
func (k *Kubelet) commandFlags(words []argument) {
	for i, w := range words {
		flag, is := strings.CutPrefix(w.text, "--")
		if !is {
			continue
		}
		flag, value, assigned := strings.Cut(flag, "=")
		switch {
		case assigned:
		case i+1 < len(words) && !strings.HasPrefix(words[i+1].text, "-"):
			value = words[i+1].text
		default:
			value = "true"
		}
		flag = strings.ReplaceAll(flag, "_", "-")
		k.Flags[flag] = KubeletValue{value, Source{w.file, "--" + flag + "=" + value}}
	}
}

// readUsualPlaces reads the flags in the unit and in the files of variables that the units of distributions
// read. It returns the usual places of the configuration.
func (k *Kubelet) readUsualPlaces(files Files, found []File) (configs, dirs []string, err error) {
	for _, name := range []string{"/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet"} {
		text, exists, err := ReadIfAny(files, name)
		if err != nil {
			return nil, nil, err
		}
		if exists {
			k.Found = true
			found = append(found, File{Path: name, Text: text})
		}
	}
	for _, f := range found {
		for flag, value := range Flags(string(f.Text)) {
			k.Flags[flag] = KubeletValue{value, Source{f.Path, "--" + flag + "=" + value}}
			k.Found = true
		}
	}
	return []string{
		"/var/lib/kubelet/config.yaml", "/var/lib/kubelet/kubelet.conf", "/etc/kubernetes/kubelet/config.json",
		"/etc/kubernetes/kubelet/kubelet-config.json", "/etc/kubernetes/kubelet-config.yaml", "/etc/kubernetes/kubelet.yaml",
	}, []string{"/etc/kubernetes/kubelet.conf.d", "/etc/kubernetes/kubelet/config.json.d"}, nil
}

// readConfig reads the scalars of a KubeletConfiguration. JSON is YAML too.
func (k *Kubelet) readConfig(files Files, name string) error {
	text, found, err := ReadYAML(files, name)
	if err != nil || !found {
		return err
	}
	k.Found = true
	settings, err := settingsOf(text)
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	k.addSettings(name, "", settings)
	return nil
}

func (k *Kubelet) addSettings(file, prefix string, settings map[string]any) {
	for key, v := range settings {
		switch v := v.(type) {
		case bool, string, int:
			value := fmt.Sprint(v)
			k.Values[prefix+key] = KubeletValue{value, Source{file, prefix + key + ": " + value}}
		case map[string]any:
			if len(v) == 0 { // not the same as unset: it replaces a default
				k.Values[prefix+key] = KubeletValue{"", Source{file, prefix + key + ": {}"}}
			}
			k.addSettings(file, prefix+key+".", v)
		case []any: // in the form of the flag; maps in a list also by their index
			k.removeSettings(prefix + key)
			value := strings.Join(strings.Fields(strings.Trim(fmt.Sprint(v), "[]")), ",")
			k.Values[prefix+key] = KubeletValue{value, Source{file, prefix + key + ": " + value}}
			for i, element := range v {
				if settings, is := element.(map[string]any); is {
					k.addSettings(file, fmt.Sprintf("%s%s.%d.", prefix, key, i), settings)
				}
			}
		case nil: // back to kubelet's default: drop-ins are merged according to RFC 7386
			k.removeSettings(prefix + key)
		}
	}
}

func (k *Kubelet) removeSettings(key string) {
	maps.DeleteFunc(k.Values, func(have string, _ KubeletValue) bool { return have == key || strings.HasPrefix(have, key+".") })
}

// Gate reports the value of a feature gate, as the flag or the configuration sets it. AllAlpha and AllBeta are gates too.
func (k Kubelet) Gate(name string) (on, set bool) {
	value := k.Values["featureGates."+name].Value
	lists := append(flagValues(k.Command, "--feature-gates", "--feature_gates"), k.Flags["feature-gates"].Value)
	for _, list := range lists { // the flag changes single gates
		for pair := range strings.SplitSeq(list, ",") {
			if gate, said, is := strings.Cut(strings.TrimSpace(pair), "="); is && gate == name {
				value = said
			}
		}
	}
	return ParseBool(value)
}

// KernelDefaults are the values that kubelet's protectKernelDefaults requires, in the order in which kubelet names them.
func KernelDefaults() [][2]string {
	return [][2]string{
		{"vm/overcommit_memory", "1"}, {"vm/panic_on_oom", "0"}, {"kernel/panic", "10"},
		{"kernel/panic_on_oops", "1"}, {"kernel/keys/root_maxkeys", "1000000"}, {"kernel/keys/root_maxbytes", "25000000"},
	}
}

// KubeletFileMistake returns the reason why kubelet exits because of a configuration file, as the end of a sentence that begins with
// "FILE is", or "". A duplicate key is a mistake only in a drop-in, which kubelet decodes strictly (DecodeKubeletConfigurationIntoJSON).
func KubeletFileMistake(text []byte, dropIn bool) string {
	if len(text) == 0 {
		return "empty"
	}
	const version, kind = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	settings, err := settingsOf(text)
	if dropIn && err == nil {
		var strict map[string]any
		err = UnmarshalYAML(text, &strict)
	}
	switch {
	case err != nil:
		return "not readable: " + strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
	case settings["apiVersion"] == nil || settings["kind"] == nil:
		return "without apiVersion or kind"
	case settings["apiVersion"] != version:
		return fmt.Sprintf("of apiVersion %v, not %s", settings["apiVersion"], version)
	case settings["kind"] != kind:
		return fmt.Sprintf("of kind %v, not %s", settings["kind"], kind)
	}
	return ""
}
