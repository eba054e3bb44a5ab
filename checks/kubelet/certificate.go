package kubelet

import (
	"cmp"
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

// certificate: kubelet exits where its client certificate is over and what should give it a new one is missing.
func certificate() checks.Problem {
	return checks.Problem{
		Name: "kubelet.certificate", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "kubelet's client certificate is missing or expired, and the bootstrap kubeconfig that would get it a new one is not there.",
		Symptom: "kubelet exits: \"part of the existing bootstrap client certificate ... is expired\"; the node, often one that was off " +
			"for long, never becomes Ready again.",
		How: "The kubeconfig of kubelet's --kubeconfig is read, and the first certificate that its user names or holds; its end is compared " +
			"with the clock. Where --bootstrap-kubeconfig names a file that exists, kubelet renews by itself; where it is not given, kubelet " +
			"starts with an expired certificate, see kubelet.certificate-dates, or without one.",
		Remedy:   certificateRemedy,
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/troubleshooting-kubeadm/#kubelet-client-cert",
		Inspect: func(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectCertificate(h, time.Now(), true)
		},
	}
}

// certificateDates: kubelet runs, and the API server does not know it.
func certificateDates() checks.Problem {
	return checks.Problem{
		Name: "kubelet.certificate-dates", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "kubelet's client certificate is expired, or not yet valid by this machine's clock.",
		Symptom: "kubelet runs, and logs \"Unauthorized\" or \"x509: certificate has expired or is not yet valid\"; the node is NotReady.",
		How: "As kubelet.certificate, with both dates. With rotateCertificates kubelet uses kubelet-client-current.pem of --cert-dir " +
			"until it is over, whatever the kubeconfig holds.",
		Remedy:   certificateRemedy,
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/troubleshooting-kubeadm/#kubelet-client-cert",
		Inspect: func(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectCertificate(h, time.Now(), false)
		},
	}
}

const certificateRemedy = "on a control plane, run: kubeadm kubeconfig user --org system:nodes --client-name system:node:NODE; or join " +
	"the node again"

// inspectCertificate compares the certificate's dates with now; with exits, only those that make kubelet exit.
func inspectCertificate(h *host.Host, now time.Time, exits bool) (checks.State, error) {
	s := checks.Passing("a client certificate that is valid now")
	k, found, err := read(h, &s)
	if !found {
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
	bootstrap := k.Flags["bootstrap-kubeconfig"].Value
	if bootstrap != "" {
		if exists, err := h.Files.Exists(bootstrap); err != nil || exists {
			s.Skip = "kubelet gets its certificate by " + bootstrap
			return s, err
		}
	}
	c, from, err := clientCertificate(h, kubeconfig)
	if !exits && k.Values["rotateCertificates"].Value == "true" {
		rotated := path.Join(cmp.Or(k.Flags["cert-dir"].Value, "/var/lib/kubelet/pki"), "kubelet-client-current.pem")
		switch inUse, readErr := readCertificate(h, rotated); {
		case errors.Is(readErr, fs.ErrNotExist):
		case readErr != nil:
			return s, readErr
		case now.Before(inUse.NotAfter): // getCurrentCertificateOrBootstrap: after that, it is the kubeconfig's again
			c, from, err = inUse, rotated, nil
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.Evidence = []checks.Evidence{checks.Seen(kubeconfig, err.Error())}
		if !exits {
			s.Skip = "there is no certificate, see kubelet.certificate"
			return s, nil
		}
		s.Differs("missing, and no bootstrap kubeconfig", "join the node again, or give kubelet a bootstrap kubeconfig")
		return s, nil
	case err != nil:
		return s, err
	case c == nil && bootstrap != "" && exits: // where it is given a way to get one, kubelet wants one (isClientConfigStillValid)
		s.Evidence = []checks.Evidence{checks.Seen(kubeconfig, "no user with a certificate"), checks.Seen(bootstrap, "missing")}
		s.Differs("none in "+kubeconfig+", and no bootstrap kubeconfig", "join the node again, or give kubelet a bootstrap kubeconfig, or take "+
			"--bootstrap-kubeconfig out of its arguments")
		return s, nil
	case c == nil:
		s.Skip = kubeconfig + " uses no certificate"
		return s, nil
	}
	s.Evidence = []checks.Evidence{checks.Seen(from, fmt.Sprintf("%s, valid from %s to %s", c.Subject.CommonName,
		c.NotBefore.UTC().Format(time.RFC3339), c.NotAfter.UTC().Format(time.RFC3339)))}
	switch {
	case exits && (bootstrap == "" || now.Before(c.NotAfter)):
		s.Got = "a client certificate with which kubelet starts"
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
	user := file.Users[0].User
	switch {
	case user.Data != "":
		encoded, err := base64.StdEncoding.DecodeString(user.Data)
		if err != nil {
			return nil, "", fmt.Errorf("reading client-certificate-data of %s: %w", kubeconfig, err)
		}
		c, err := parseCertificate(encoded, kubeconfig)
		return c, kubeconfig, err
	case user.File != "":
		from := user.File
		if !path.IsAbs(from) {
			from = path.Join(path.Dir(kubeconfig), from)
		}
		c, err := readCertificate(h, from)
		return c, from, err
	default:
		return nil, "", nil
	}
}

// readCertificate returns the first certificate of a file in PEM.
func readCertificate(h *host.Host, name string) (*x509.Certificate, error) {
	encoded, err := h.Files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parseCertificate(encoded, name)
}

func parseCertificate(encoded []byte, from string) (*x509.Certificate, error) {
	for block, rest := pem.Decode(encoded); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("reading the certificate in %s: %w", from, err)
			}
			return c, nil
		}
	}
	return nil, fmt.Errorf("%s has no certificate in PEM", from)
}
