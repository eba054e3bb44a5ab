package kubelet

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"go.yaml.in/yaml/v3"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// certificate: kubelet exits where its client certificate is over and nothing gives it a new one.
func certificate() checks.Problem {
	return checks.Problem{
		Name: "kubelet.certificate", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block,
		Detects: "kubelet's client certificate is expired, not yet valid or missing, and there is no bootstrap kubeconfig to get a new " +
			"one with.",
		Symptom: "kubelet exits: \"part of the existing bootstrap client certificate ... is expired\"; the node, often one that was off " +
			"for long, never " +
			"becomes Ready again.",
		How: "The kubeconfig of kubelet's --kubeconfig is read, and the first certificate that its user names or holds; its dates are " +
			"compared with " +
			"the clock. Where --bootstrap-kubeconfig names a file that exists, kubelet renews by itself. Without such flags nothing is " +
			"read.",
		Remedy: "on a control plane, run: kubeadm kubeconfig user --org system:nodes --client-name system:node:NODE; or join the node " +
			"again",
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/troubleshooting-kubeadm/#kubelet-client-cert",
		Inspect: func(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectCertificate(h, time.Now())
		},
	}
}

func inspectCertificate(h *host.Host, now time.Time) (checks.State, error) {
	s := checks.Passing("a client certificate that is valid now")
	k, err := h.Kubelet()
	if err != nil {
		return s, err
	}
	if before, err := beforeJoin(h, k); before || err != nil {
		s.Skip = notJoined
		return s, err
	}
	kubeconfig := k.Flags["kubeconfig"].Value
	if kubeconfig == "" {
		s.Skip = "kubelet is given no kubeconfig"
		return s, nil
	}
	if bootstrap := k.Flags["bootstrap-kubeconfig"].Value; bootstrap != "" {
		if exists, err := h.Files.Exists(bootstrap); err != nil || exists {
			s.Skip = "kubelet gets its certificate by " + bootstrap
			return s, err
		}
	}
	c, from, err := clientCertificate(h, kubeconfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.Evidence = []checks.Evidence{checks.Seen(kubeconfig, err.Error())}
		s.Differs("missing, and no bootstrap kubeconfig", "join the node again, or give kubelet a bootstrap kubeconfig")
		return s, nil
	case err != nil:
		return s, err
	case c == nil:
		s.Skip = kubeconfig + " uses no certificate"
		return s, nil
	}
	s.Evidence = []checks.Evidence{checks.Seen(from, fmt.Sprintf("%s, valid from %s to %s", c.Subject.CommonName,
		c.NotBefore.UTC().Format(time.RFC3339), c.NotAfter.UTC().Format(time.RFC3339)))}
	switch {
	case now.After(c.NotAfter):
		s.Differs("expired since "+c.NotAfter.UTC().Format(time.RFC3339), "")
	case now.Before(c.NotBefore):
		s.Differs("valid only from "+c.NotBefore.UTC().Format(time.RFC3339),
			"set the clock, which reads "+now.UTC().Format(time.RFC3339)+": timedatectl; and see why it is not synchronised")
	}
	return s, nil
}

// clientCertificate returns the certificate of a kubeconfig's first user, and where
// it is. It is nil where that user authenticates in another way.
func clientCertificate(h *host.Host, kubeconfig string) (*x509.Certificate, string, error) {
	text, err := h.Files.ReadFile(kubeconfig)
	if err != nil {
		return nil, "", err
	}
	var file struct {
		Users []struct {
			User struct {
				File string `yaml:"client-certificate"`
				Data string `yaml:"client-certificate-data"`
			} `yaml:"user"`
		} `yaml:"users"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, "", fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	if len(file.Users) == 0 {
		return nil, "", nil
	}
	user, from := file.Users[0].User, kubeconfig
	var encoded []byte
	switch {
	case user.Data != "":
		if encoded, err = base64.StdEncoding.DecodeString(user.Data); err != nil {
			return nil, "", fmt.Errorf("reading client-certificate-data of %s: %w", kubeconfig, err)
		}
	case user.File != "":
		from = user.File
		if !path.IsAbs(from) {
			from = path.Join(path.Dir(kubeconfig), from)
		}
		if encoded, err = h.Files.ReadFile(from); err != nil {
			return nil, "", err
		}
	default:
		return nil, "", nil
	}
	for block, rest := pem.Decode(encoded); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, "", fmt.Errorf("reading the certificate in %s: %w", from, err)
			}
			return c, from, nil
		}
	}
	return nil, "", fmt.Errorf("%s has no certificate in PEM", from)
}
