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
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// certificate: kubelet exits where its client certificate is over and what should give it a new one is missing.
func certificate() checks.Problem {
	return checks.Problem{
		Name: "kubelet.certificate", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "kubelet's client certificate is missing or expired, and the bootstrap kubeconfig that would get it a new one is not there; " +
			"or the file of the rotated one is damaged, as a power cut leaves it.",
		Symptom: "kubelet exits: \"part of the existing bootstrap client certificate ... is expired\"; the node, often one that was off " +
			"for long, never becomes Ready again.",
		How: "The kubeconfig of kubelet's --kubeconfig is read, and the certificates that its user names or holds; the first end of them is " +
			"compared with the clock. Where --bootstrap-kubeconfig names a file that exists, kubelet renews by itself; where it is not given, " +
			"kubelet starts with an expired certificate, see kubelet.certificate-dates, or without one. With rotateCertificates, " +
			"kubelet-client-current.pem of --cert-dir is read, too: where it is there, it must have a certificate and its key.",
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
	rotated, broken, err := rotatedCertificate(h, k)
	if err != nil {
		return s, err
	}
	if broken != nil {
		if !exits {
			s.Skip = rotated.from + " is damaged, see kubelet.certificate"
			return s, nil
		}
		s.Evidence = []checks.Evidence{checks.Seen(rotated.from, broken.Error())}
		s.Differs("no certificate with its key in "+rotated.from, "remove "+rotated.from+", and join the node again where its kubeconfig "+
			"names that file")
		return s, nil
	}
	bootstrap := k.Flags["bootstrap-kubeconfig"].Value
	if bootstrap != "" {
		if exists, err := h.Files.Exists(bootstrap); err != nil || exists {
			s.Skip = "kubelet gets its certificate by " + bootstrap
			return s, err
		}
	}
	c, err := clientCertificate(h, kubeconfig)
	if !exits && rotated.found() && now.Before(rotated.until) { // getCurrentCertificateOrBootstrap: after that, it is the kubeconfig's again
		c, err = rotated, nil
	}
	var unusable unusableError
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.As(err, &unusable) && bootstrap != "":
		s.Evidence = []checks.Evidence{checks.Seen(kubeconfig, err.Error())}
		if !exits {
			s.Skip = "there is no certificate, see kubelet.certificate"
			return s, nil
		}
		s.Differs("missing, and no bootstrap kubeconfig", "join the node again, or give kubelet a bootstrap kubeconfig")
		return s, nil
	case err != nil:
		return s, err
	case !c.found() && bootstrap != "" && exits: // where it is given a way to get one, kubelet wants one (isClientConfigStillValid)
		s.Evidence = []checks.Evidence{checks.Seen(kubeconfig, "no user with a certificate"), checks.Seen(bootstrap, "missing")}
		s.Differs("none in "+kubeconfig+", and no bootstrap kubeconfig", "join the node again, or give kubelet a bootstrap kubeconfig, or take "+
			"--bootstrap-kubeconfig out of its arguments")
		return s, nil
	case !c.found():
		s.Skip = kubeconfig + " uses no certificate"
		return s, nil
	}
	s.Evidence = []checks.Evidence{checks.Seen(c.from, fmt.Sprintf("%s, valid from %s to %s", c.name, c.since.UTC().Format(time.RFC3339),
		c.until.UTC().Format(time.RFC3339)))}
	switch {
	case exits && (bootstrap == "" || now.Before(c.until)):
		s.Got = "a client certificate with which kubelet starts"
	case now.After(c.until):
		s.Differs("expired since "+c.until.UTC().Format(time.RFC3339), "")
	case now.Before(c.since):
		s.Differs("valid only from "+c.since.UTC().Format(time.RFC3339),
			"set the clock, which reads "+now.UTC().Format(time.RFC3339)+": timedatectl; and see why it is not synchronised")
	}
	return s, nil
}

// clientAuth is a client certificate, or a chain of them.
type clientAuth struct {
	name         string // whose it is
	from         string // its file
	since, until time.Time
}

// found reports whether there is a certificate. Its dates are another question.
func (c clientAuth) found() bool { return !c.until.IsZero() }

// unusableError is a kubeconfig, or a file that it names, in which kubelet finds no certificate.
type unusableError struct{ error }

// rotatedCertificate returns the certificate that kubelet has rotated; broken says why kubelet cannot load it, and exits
// (getCurrentCertificateOrBootstrap in client-go/util/certificate). There is none where kubelet does not rotate, or has
// not yet.
func rotatedCertificate(h *host.Host, k config.Kubelet) (c clientAuth, broken, err error) {
	if k.Values["rotateCertificates"].Value != "true" {
		return c, nil, nil
	}
	file := path.Join(cmp.Or(k.Flags["cert-dir"].Value, "/var/lib/kubelet/pki"), "kubelet-client-current.pem")
	text, err := h.Files.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil, nil
	}
	if err != nil {
		return c, nil, err
	}
	c, broken = readChain(text, file)
	if broken == nil && !config.HasPrivateKey(text) {
		broken = fmt.Errorf("%s has no private key in PEM", file)
	}
	return c, broken, nil
}

// clientCertificate returns the certificate of a kubeconfig's first user. There is none where that user authenticates in
// another way.
func clientCertificate(h *host.Host, kubeconfig string) (none clientAuth, err error) {
	text, err := h.Files.ReadFile(kubeconfig)
	if err != nil {
		return none, err
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
		return none, unusableError{fmt.Errorf("reading %s: %w", kubeconfig, err)}
	}
	if len(file.Users) == 0 {
		return none, nil
	}
	user, from := file.Users[0].User, kubeconfig
	var encoded []byte
	switch {
	case user.Data != "":
		if encoded, err = base64.StdEncoding.DecodeString(user.Data); err != nil {
			return none, unusableError{fmt.Errorf("reading client-certificate-data of %s: %w", kubeconfig, err)}
		}
	case user.File != "":
		from = user.File
		if !path.IsAbs(from) {
			from = path.Join(path.Dir(kubeconfig), from)
		}
		if encoded, err = h.Files.ReadFile(from); err != nil {
			return none, err
		}
	default:
		return none, nil
	}
	c, err := readChain(encoded, from)
	if err != nil {
		err = unusableError{err}
	}
	return c, err
}

// readChain reads certificates in PEM. It takes the name of the first, and the time in which all are valid: kubelet asks
// that of all in the file (isClientConfigStillValid). With an error it returns only where they should be.
func readChain(encoded []byte, from string) (clientAuth, error) {
	none := clientAuth{from: from}
	c, found := none, false
	for block, rest := pem.Decode(encoded); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		one, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil:
			return none, fmt.Errorf("reading the certificate in %s: %w", from, err)
		case !found:
			found = true
			c.name, c.since, c.until = one.Subject.CommonName, one.NotBefore, one.NotAfter
		case one.NotAfter.Before(c.until):
			c.until = one.NotAfter
		}
	}
	if !found {
		return none, fmt.Errorf("%s has no certificate in PEM", from)
	}
	return c, nil
}
