package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// configuration: kubelet exits if it cannot read its configuration files.
func configuration() checks.Problem {
	return checks.Problem{
		Name: "kubelet.config", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "kubelet's configuration file, one of its drop-ins or a certificate named in it is missing, empty, " +
			"not YAML or of another kind; the serving certificate that kubelet generated is damaged, for example by a power cut; or an " +
			"image credential provider is missing.",
		Symptom: "kubelet restarts forever: \"failed to load kubelet config file\", \"failed to merge kubelet " +
			"configs\", \"open /etc/kubernetes/pki/ca.crt: no such file or directory\", \"missing content for serving cert\" or \"plugin " +
			"binary directory ... did not exist\".",
		How: "Parses the file of --config and the .conf files in --config-dir, as given in kubelet's unit. apiVersion " +
			"must be kubelet.config.k8s.io/v1beta1 and kind KubeletConfiguration. The files of clientCAFile, tlsCertFile and " +
			"tlsPrivateKeyFile must exist and be PEM. kubelet.crt and kubelet.key in --cert-dir must be PEM and exist together or not at " +
			"all; with serverTLSBootstrap, kubelet-server-current.pem must be PEM if it exists. The file of " +
			"--image-credential-provider-config, the directory of --image-credential-provider-bin-dir and each provider's program in it " +
			"must exist. Unknown fields pass: kubelet only logs them. The check is skipped if the command line of kubelet's unit is " +
			"unknown, and before kubeadm join.",
		Remedy:   "correct the file; the KubeletConfiguration reference lists all fields",
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/",
		Inspect:  inspectConfiguration,
	}
}

func inspectConfiguration(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("files that kubelet can read")
	k, err := h.Kubelet() // files that cannot be parsed are reported below, with a clearer message
	if k.Command == nil {
		s.Skip = "kubelet's command line is unknown: " + k.Unknown
		return s, err
	}
	if before, err := isBeforeJoin(h, k); before || err != nil {
		s.Skip = notJoined
		return s, err
	}
	mends, err := mendsOf(h)
	if err != nil {
		return s, err
	}
	// later reports whether a command of the unit writes a file before kubelet starts.
	var unsure error
	later := func(name string) bool {
		at := mends.Writes(name)
		if at == "" && mends.Unread != nil {
			unsure = fmt.Errorf("%s is missing or wrong, unless a command before kubelet's start writes it: %w", name, mends.Unread)
		}
		if at != "" {
			s.Evidence = append(s.Evidence, checks.Seen(at, "writes "+name+" before kubelet starts"))
		}
		return at != ""
	}
	var wrong []string
	if k.DropIns != "" {
		switch _, err := h.Files.ReadDir(k.DropIns); {
		case errors.Is(err, fs.ErrNotExist) && later(k.DropIns):
		case errors.Is(err, fs.ErrNotExist):
			wrong = append(wrong, k.DropIns+" is missing")
		case err != nil:
			return s, err
		}
	}
	for _, name := range k.Configs {
		text, found, err := config.ReadYAML(config.As(h.Files, config.KubeletConfig), name)
		if err != nil {
			return s, err
		}
		mistake := "missing"
		if found {
			mistake = config.KubeletFileMistake(text, k.DropIns != "" && strings.HasPrefix(name, k.DropIns+"/"))
		}
		if mistake != "" && !later(name) {
			wrong = append(wrong, name+" is "+mistake)
		}
	}
	named, err := checkNamedFiles(h, k, &s, later)
	if err != nil {
		return s, err
	}
	own, remedy, err := checkOwnCertificate(h, k)
	if err != nil {
		return s, err
	}
	providers, err := checkCredentialProviders(h, k, &s)
	if err != nil {
		return s, err
	}
	if unsure != nil {
		return s, unsure
	}
	if wrong = append(append(wrong, named...), providers...); wrong != nil {
		remedy = ""
	}
	if wrong = append(wrong, own...); wrong != nil {
		s.Differs(strings.Join(wrong, "; "), remedy)
	}
	return s, nil
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
