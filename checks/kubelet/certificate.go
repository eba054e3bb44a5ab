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

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// certificateDates: kubelet runs, but the API server rejects its certificate.
func certificateDates() checks.Problem {
	return checks.Problem{
		Name: "kubelet.certificate-dates", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn, Later: true, AtBoot: true,
		Detects: "kubelet's client certificate has expired, or is not yet valid by this machine's clock.",
		Symptom: "kubelet runs and logs \"Unauthorized\" or \"x509: certificate has expired or is not yet valid\"; the node is NotReady.",
		How: "Reads the kubeconfig of kubelet's --kubeconfig and the certificates of its user, and compares their dates with the clock. With " +
			"rotateCertificates, kubelet uses kubelet-client-current.pem in --cert-dir until it expires, whatever the kubeconfig contains. If the " +
			"file of --bootstrap-kubeconfig exists, kubelet renews the certificate itself. A certificate that is missing or damaged is " +
			"kubelet.exit's: kubelet names it.",
		Remedy: certificateRemedy,
		Ref:    "https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/troubleshooting-kubeadm/#kubelet-client-cert",
		Inspect: func(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectCertificate(h, time.Now())
		},
	}
}

const certificateRemedy = "on a control plane node, run `kubeadm kubeconfig user --org system:nodes --client-name system:node:NODE`; " +
	"or join the node again"

// inspectCertificate compares the certificate's dates with now.
func inspectCertificate(h *host.Host, now time.Time) (checks.State, error) {
	s := checks.Passing("a valid client certificate")
	k, found, err := readConfig(h, &s)
	if !found {
		return s, err
	}
	if before, err := isBeforeJoin(h, k); before || err != nil {
		s.Skip = notJoined
		return s, err
	}
	kubeconfig := k.Flags["kubeconfig"].Value
	if kubeconfig == "" {
		s.Skip = "kubelet has no --kubeconfig"
		isKnown(k, &s)
		return s, nil
	}
	if k.Renews {
		if running, err := ownKubelets(h); len(running) == 0 || err != nil {
			s.Got = "requested by " + k.Holder + " at each start"
			return s, err
		}
	}
	if bootstrap := k.Flags["bootstrap-kubeconfig"].Value; bootstrap != "" {
		if exists, err := h.Files.Exists(bootstrap); err != nil || exists {
			s.Skip = "kubelet requests its certificate with " + bootstrap
			return s, err
		}
	}
	c, err := clientCertificate(h, kubeconfig)
	// It uses the kubeconfig's again once the rotated one has expired (getCurrentCertificateOrBootstrap).
	if k.Values["rotateCertificates"].Value == "true" {
		rotated, failed := readChain(h, rotatedFile(k))
		if failed == nil && now.Before(rotated.until) {
			c, err = rotated, nil
		} else if failed != nil && !isAbsent(failed) {
			return s, failed
		}
	}
	if isAbsent(err) {
		s.Skip = "nothing to compare: " + err.Error()
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.Evidence = []checks.Evidence{checks.Seen(c.from, fmt.Sprintf("%s, valid from %s to %s", c.name, c.since.UTC().Format(time.RFC3339),
		c.until.UTC().Format(time.RFC3339)))}
	switch {
	case now.After(c.until) && k.Renews:
		s.Differs("expired since "+c.until.UTC().Format(time.RFC3339), "run `systemctl restart "+k.Holder+"`, which requests a new one")
	case now.After(c.until):
		s.Differs("expired since "+c.until.UTC().Format(time.RFC3339), "replace "+kubeconfig+" by the output, on a control plane node, of "+
			"`kubeadm kubeconfig user --org system:nodes --client-name "+c.name+"`, and remove "+rotatedFile(k)+"; or join the node again")
	case now.Before(c.since):
		s.Differs("valid only from "+c.since.UTC().Format(time.RFC3339),
			"set the clock, which reads "+now.UTC().Format(time.RFC3339)+" (`timedatectl`), and find out why it is not synchronised")
	}
	return s, nil
}

// clientAuth is a client certificate, or a chain of them.
type clientAuth struct {
	name         string // common name
	from         string // its file
	since, until time.Time
}

// errNoCertificate reports that a kubeconfig, or a file that it names, has no certificate that can be read. kubelet itself says what it
// lacks.
var errNoCertificate = errors.New("no client certificate")

// isAbsent reports whether there is no certificate to compare.
func isAbsent(err error) bool {
	return errors.Is(err, errNoCertificate) || errors.Is(err, fs.ErrNotExist)
}

func rotatedFile(k config.Kubelet) string {
	return path.Join(cmp.Or(k.Flags["cert-dir"].Value, "/var/lib/kubelet/pki"), "kubelet-client-current.pem")
}

// clientCertificate returns the certificate of the user in a kubeconfig's current context.
func clientCertificate(h *host.Host, kubeconfig string) (none clientAuth, err error) {
	text, err := h.Files.ReadFile(kubeconfig)
	if err != nil {
		return none, err
	}
	file, err := config.ParseKubeClient(text)
	if err != nil {
		return none, fmt.Errorf("%w in %s: %w", errNoCertificate, kubeconfig, err)
	}
	chosen, err := file.Choose()
	if err != nil && !errors.Is(err, config.ErrNoUser) {
		return none, fmt.Errorf("%w in %s: it has no usable context", errNoCertificate, kubeconfig)
	}
	user := chosen.User
	switch {
	case user.CertificateData != "":
		encoded, _ := base64.StdEncoding.DecodeString(user.CertificateData)
		return parseChain(encoded, kubeconfig)
	case user.Certificate == "" || path.IsAbs(user.Certificate):
		return readChain(h, user.Certificate)
	}
	return readChain(h, path.Join(path.Dir(kubeconfig), user.Certificate))
}

func readChain(h *host.Host, name string) (none clientAuth, err error) {
	if name == "" {
		return none, errNoCertificate
	}
	encoded, err := h.Files.ReadFile(name)
	if err != nil {
		return none, err
	}
	return parseChain(encoded, name)
}

// parseChain parses PEM certificates. It returns the name of the first one and the period in which all are valid: kubelet requires every
// certificate of the file to be valid (isClientConfigStillValid).
func parseChain(encoded []byte, from string) (clientAuth, error) {
	c := clientAuth{from: from}
	for block, rest := pem.Decode(encoded); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		one, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil:
			return clientAuth{}, fmt.Errorf("%w in %s: %w", errNoCertificate, from, err)
		case c.until.IsZero():
			c.name, c.since, c.until = one.Subject.CommonName, one.NotBefore, one.NotAfter
		case one.NotAfter.Before(c.until):
			c.until = one.NotAfter
		}
	}
	if c.until.IsZero() {
		return c, fmt.Errorf("%w in %s", errNoCertificate, from)
	}
	return c, nil
}
