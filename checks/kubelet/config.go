package kubelet

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// configuration: kubelet exits over a configuration file that it cannot read.
func configuration() checks.Problem {
	return checks.Problem{
		Name: "kubelet.config", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "kubelet's configuration file, a drop-in of it or a certificate that it names is missing, empty, not YAML or of another kind; " +
			"the certificate that kubelet serves with, which it made itself, is damaged, as a power cut leaves it; or a program that gets it " +
			"credentials for images is missing.",
		Symptom: "kubelet restarts for ever: \"failed to load kubelet config file\", \"failed to merge kubelet configs\", \"open " +
			"/etc/kubernetes/pki/ca.crt: no such file or directory\", \"missing content for serving cert\" or \"plugin binary " +
			"directory ... did not exist\".",
		How: "The file of --config and the .conf files of --config-dir, as kubelet's unit gives them, are parsed; apiVersion is " +
			"kubelet.config.k8s.io/v1beta1, kind KubeletConfiguration; clientCAFile, tlsCertFile and tlsPrivateKeyFile exist, in PEM. " +
			"kubelet.crt and kubelet.key of --cert-dir, or kubelet-server-current.pem with serverTLSBootstrap, are in PEM where they are there, " +
			"and neither of the first two is there alone. The file of --image-credential-provider-config and the folder of " +
			"--image-credential-provider-bin-dir are there, and each provider of the file is in the folder. An unknown field is no reason: " +
			"kubelet logs it and goes on. Nothing is read where the command line of kubelet's unit cannot be known, and before kubeadm join.",
		Remedy:   "correct the file; the reference of KubeletConfiguration has all fields",
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/",
		Inspect:  inspectConfiguration,
	}
}

func inspectConfiguration(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("files that kubelet can read")
	k, err := h.Kubelet() // what cannot be parsed is found again, in better words
	if k.Command == nil {
		s.Skip = "kubelet's command line cannot be known: " + k.Unknown
		return s, err
	}
	if before, err := beforeJoin(h, k); before || err != nil {
		s.Skip = notJoined
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
	named, err := namedFiles(h, k, &s)
	if err != nil {
		return s, err
	}
	own, remedy, err := ownCertificate(h, k)
	if err != nil {
		return s, err
	}
	providers, err := credentialProviders(h, k, &s)
	if err != nil {
		return s, err
	}
	if wrong = append(append(wrong, named...), providers...); wrong != nil {
		remedy = ""
	}
	if wrong = append(wrong, own...); wrong != nil {
		s.Differs(strings.Join(wrong, "; "), remedy)
	}
	return s, nil
}

const notJoined = "this node has joined no cluster yet: kubeadm join writes kubelet's files"

// beforeJoin reports whether none of the files is there that kubeadm join writes. Until then kubelet restarts again and
// again, as kubeadm's authors want it: who starts its unit must not wait.
func beforeJoin(h *host.Host, k config.Kubelet) (bool, error) {
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
