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

// certificate: kubelet exits if its client certificate has expired and it cannot get a new one.
func certificate() checks.Problem {
	return checks.Problem{
		Name: "kubelet.certificate", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "kubelet's client certificate has expired, and the bootstrap kubeconfig that would renew it does not exist.",
		Symptom: "kubelet exits: \"part of the existing bootstrap client certificate ... is expired\". The node, often " +
			"one that was powered off for a long time, never becomes Ready again.",
		How: "Reads the kubeconfig of kubelet's --kubeconfig and the certificates of its user, and compares the earliest expiry date with the " +
			"clock. If the file of --bootstrap-kubeconfig exists, kubelet renews the certificate itself and the check is skipped. Without that " +
			"flag kubelet starts even if the certificate has expired (see kubelet.certificate-dates). A certificate that is missing or damaged " +
			"is kubelet.exit's: kubelet names it.",
		Remedy: certificateRemedy,
		Ref:    "https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/troubleshooting-kubeadm/#kubelet-client-cert",
		Inspect: func(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectCertificate(h, time.Now(), true)
		},
	}
}

// certificateDates: kubelet runs, but the API server rejects its certificate.
func certificateDates() checks.Problem {
	return checks.Problem{
		Name: "kubelet.certificate-dates", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn, Later: true, AtBoot: true,
		Detects: "kubelet's client certificate has expired, or is not yet valid by this machine's clock.",
		Symptom: "kubelet runs and logs \"Unauthorized\" or \"x509: certificate has expired or is not yet valid\"; the node is NotReady.",
		How: "Like kubelet.certificate, but checks both dates. With rotateCertificates, kubelet uses " +
			"kubelet-client-current.pem in --cert-dir until it expires, whatever the kubeconfig contains.",
		Remedy: certificateRemedy,
		Ref:    "https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/troubleshooting-kubeadm/#kubelet-client-cert",
		Inspect: func(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectCertificate(h, time.Now(), false)
		},
	}
}

const certificateRemedy = "on a control plane node, run `kubeadm kubeconfig user --org system:nodes --client-name system:node:NODE`; " +
	"or join the node again"

// inspectCertificate compares the certificate's dates with now. With exits it reports only the faults that make kubelet exit.
func inspectCertificate(h *host.Host, now time.Time, exits bool) (checks.State, error) {
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
		renewed := s
		renewed.Got = "requested by " + k.Holder + " at each start"
		if exits {
			return renewed, nil
		}
		if running, err := ownKubelets(h); len(running) == 0 || err != nil {
			return renewed, err
		}
	}
	bootstrap := k.Flags["bootstrap-kubeconfig"].Value
	if bootstrap != "" {
		if exists, err := h.Files.Exists(bootstrap); err != nil || exists {
			s.Skip = "kubelet requests its certificate with " + bootstrap
			return s, err
		}
	}
	c, err := clientCertificate(h, kubeconfig)
	if !exits { // it uses the kubeconfig's again once the rotated one has expired (getCurrentCertificateOrBootstrap)
		rotated, failed := rotatedCertificate(h, k)
		if failed != nil {
			return s, failed
		}
		if now.Before(rotated.until) {
			c, err = rotated, nil
		}
	}
	if errors.Is(err, errNoCertificate) || errors.Is(err, fs.ErrNotExist) {
		s.Skip = "nothing to compare: " + err.Error()
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.Evidence = []checks.Evidence{checks.Seen(c.from, fmt.Sprintf("%s, valid from %s to %s", c.name, c.since.UTC().Format(time.RFC3339),
		c.until.UTC().Format(time.RFC3339)))}
	switch {
	case exits && (bootstrap == "" || now.Before(c.until)):
		s.Got = "a client certificate that lets kubelet start"
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

// rotatedCertificate returns the certificate that kubelet rotates, or an empty one.
func rotatedCertificate(h *host.Host, k config.Kubelet) (clientAuth, error) {
	if k.Values["rotateCertificates"].Value != "true" {
		return clientAuth{}, nil
	}
	file := rotatedFile(k)
	text, err := h.Files.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return clientAuth{}, err
	}
	c, _ := readChain(text, file)
	return c, nil
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
	user, from := chosen.User, kubeconfig
	var encoded []byte
	switch {
	case user.CertificateData != "":
		encoded, _ = base64.StdEncoding.DecodeString(user.CertificateData)
	case user.Certificate != "":
		from = user.Certificate
		if !path.IsAbs(from) {
			from = path.Join(path.Dir(kubeconfig), from)
		}
		if encoded, err = h.Files.ReadFile(from); err != nil {
			return none, err
		}
	}
	return readChain(encoded, from)
}

// readChain reads PEM certificates. It returns the name of the first one and the period in which all are valid: kubelet requires every
// certificate of the file to be valid (isClientConfigStillValid).
func readChain(encoded []byte, from string) (clientAuth, error) {
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
