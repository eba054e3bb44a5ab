package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// K3sKubeProxy returns the options with which k3s starts its kube-proxy, according to its configuration files, its unit, and the
// arguments of its process, most of which it hides (SetProcTitle in pkg/cli/server/server.go). RKE2 starts a separate kube-proxy, whose
// arguments are complete. Unreadable sources are left out.
func K3sKubeProxy(files Files, args []string) []KubeProxy {
	var command []string
	for _, unit := range []string{"k3s.service", "k3s-agent.service"} {
		texts, _ := WithDropIns(files, Dirs("systemd/system"), unit)
		entries, _ := ParseFiles(texts)
		if start, ok := Last(entries, "Service", "ExecStart"); ok {
			command = append(command, SplitWords(start.Value)...)
		}
	}
	command = append(command, args...)
	said := k3sOptions(files, "/etc/rancher/k3s/config.yaml", command, "kube-proxy-arg")
	// k3s' own defaults, before the configured options (kubeProxyArgs in pkg/daemons/agent).
	text := "--conntrack-max-per-core=0\n"
	var all []KubeProxy
	for _, flag := range said {
		// GetArgs in k3s' pkg/util/args.go: the hyphens are optional, and a name that ends in + or - extends the default.
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		name = strings.TrimRight(name, "+-")
		if file, found, err := ReadIfAny(files, value); name == "config" && found && err == nil {
			c, _ := ParseKubeProxy(string(file))
			all = append(all, c)
		}
		text += "--" + name + "=" + value + "\n"
	}
	c, _ := ParseKubeProxy(text)
	return append(all, c)
}

// k3sOptions returns the values of an option of k3s or RKE2 in its configuration files and then on its command line, which
// "override, or append to, the config file values".
func k3sOptions(files Files, own string, command []string, option string) (said []string) {
	names := flagValues(command, "--config", "-c")
	if names == nil {
		names = []string{own}
	}
	for _, name := range names {
		said = append(said, k3sArguments(files, name, option)...)
	}
	return append(said, flagValues(command, "--"+option, "-"+option)...)
}

// flagValues returns all values of a flag that may occur several times: --flag=value or --flag value.
func flagValues(words []string, names ...string) []string {
	var values []string
	for i, w := range words {
		name, value, assigned := strings.Cut(w, "=")
		if !assigned && i+1 < len(words) {
			value = words[i+1]
		}
		if slices.Contains(names, name) {
			values = append(values, value)
		}
	}
	return values
}

// k3sArguments reads a list of arguments as readConfigFile in k3s' pkg/configfilearg/parser.go does: a
// later file replaces the values of an earlier one, or extends them if the key ends in +.
func k3sArguments(files Files, name, list string) []string {
	names := []string{name}
	below, _ := ReadDirIfAny(files, name+".d")
	slices.Sort(below)
	for _, b := range below {
		if regexp.MustCompile(`(?i)\.ya?ml$`).MatchString(b) {
			names = append(names, name+".d/"+b)
		}
	}
	var values []string
	for _, name := range names {
		var file map[string]any
		text, _, err := ReadYAML(files, name)
		if err != nil || yaml.Unmarshal(text, &file) != nil {
			continue
		}
		for _, key := range []string{list, list + "+"} {
			said, is := file[key]
			if !is {
				continue
			}
			if key == list {
				values = nil
			}
			all, several := said.([]any)
			if !several {
				all = []any{said}
			}
			for _, v := range all {
				values = append(values, fmt.Sprint(v))
			}
		}
	}
	return values
}
