package kubelet

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/internal/host/service"
	"nodegate/policy"
)

// configuration: kubelet exits if it cannot read its configuration files.
func configuration() checks.Problem {
	return checks.Problem{
		Name: "kubelet.config", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "kubelet's configuration file or one of its drop-ins is missing, empty, not YAML or of another kind.",
		Symptom: "kubelet restarts forever: \"failed to load kubelet config file\" or \"failed to merge kubelet configs\".",
		How: "Parses the file of --config and the .conf files in --config-dir, as given in kubelet's unit. apiVersion " +
			"must be kubelet.config.k8s.io/v1beta1 and kind KubeletConfiguration. Unknown fields pass: kubelet only logs them. The check is " +
			"skipped if the command line of kubelet's unit is unknown, if another command of the unit may write the file before kubelet " +
			"starts, and before kubeadm join. Faults in the files that the configuration names are reported by kubelet.exit.",
		Remedy:  "correct the file; the KubeletConfiguration reference lists all fields",
		Ref:     "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/",
		Inspect: inspectConfiguration,
	}
}

func inspectConfiguration(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("files that kubelet can read")
	k, err := h.Kubelet() // files that cannot be parsed are reported below, with a clearer message
	if !isKnown(k, &s) {
		return s, err
	}
	if before, err := isBeforeJoin(h, k); before || err != nil {
		s.Skip = notJoined
		return s, err
	}
	at, err := findWriter(h, cmp.Or(k.Holder, "kubelet.service"), k.Configs)
	if at != "" || err != nil {
		s.Skip = "the command of " + at + " may write kubelet's configuration when the unit starts"
		return s, err
	}
	var wrong []string
	if k.DropIns != "" {
		switch _, err := h.Files.ReadDir(k.DropIns); {
		case errors.Is(err, fs.ErrNotExist):
			wrong = append(wrong, k.DropIns+" is missing")
		case err != nil:
			return s, err
		}
	}
	for _, name := range k.Configs {
		text, found, err := config.ReadYAML(h.Files, name)
		if err != nil {
			return s, err
		}
		mistake := "missing"
		if found {
			mistake = config.KubeletFileMistake(text, k.DropIns != "" && strings.HasPrefix(name, k.DropIns+"/"))
		}
		if mistake != "" {
			wrong = append(wrong, name+" is "+mistake)
		}
	}
	if wrong != nil {
		s.Differs(strings.Join(wrong, "; "), "")
	}
	return s, nil
}

// findWriter returns the place of a command of kubelet's unit that may write one of the files before kubelet starts, or "": a command that
// names the file or its directory, a shell, or a program that the distribution does not own.
func findWriter(h *host.Host, unit string, names []string) (at string, err error) {
	if len(names) == 0 {
		return "", nil
	}
	u, err := service.Read(h.Files, unit)
	for _, e := range u.Entries {
		program, arguments, _ := strings.Cut(strings.TrimLeft(e.Value, "@-:+!"), " ")
		system := slices.Contains([]string{"/bin", "/sbin", "/usr/bin", "/usr/sbin"}, path.Dir(program)) &&
			!slices.Contains([]string{"sh", "bash", "env"}, path.Base(program))
		harmless := system && slices.Contains([]string{"mkdir", "rm", "test", "chmod", "chown", "mount"}, path.Base(program))
		switch {
		case e.Section != "Service" || e.Key != "ExecStartPre" && e.Key != "ExecCondition" || strings.Contains(e.Value, "/nodegate gate"):
		case e.Value == "": // it removes the commands above
			at = ""
		case !system || !harmless && slices.ContainsFunc(names, func(name string) bool { return strings.Contains(arguments, path.Dir(name)) }):
			at = e.At()
		}
	}
	return at, err
}

const notJoined = "this node has not joined a cluster: kubeadm join writes kubelet's files"

// isBeforeJoin reports whether none of the files that kubeadm join writes exists. Until then
// kubelet keeps restarting, by kubeadm's design: starting its unit must not block.
func isBeforeJoin(h *host.Host, k config.Kubelet) (bool, error) {
	for _, flag := range []string{"kubeconfig", "bootstrap-kubeconfig", "config"} {
		if k.Flags[flag].Value == "" {
			return false, nil
		}
		if exists, err := h.Files.Exists(k.Flags[flag].Value); err != nil || exists {
			return false, err
		}
	}
	return true, nil
}
