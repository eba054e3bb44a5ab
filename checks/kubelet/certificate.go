package kubelet

import (
	"bytes"
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
		Detects: "kubelet's client certificate is missing or expired, and the bootstrap kubeconfig that would renew it " +
			"does not exist; or the file of the rotated certificate is damaged, for example by a power cut.",
		Symptom: "kubelet exits: \"part of the existing bootstrap client certificate ... is expired\". The node, often " +
			"one that was powered off for a long time, never becomes Ready again.",
		How: "Reads the kubeconfig of kubelet's --kubeconfig and the certificates of its user, and compares the earliest expiry date with the " +
			"clock. If the file of --bootstrap-kubeconfig exists, kubelet renews the certificate itself and the check is skipped. Without that " +
			"flag kubelet starts even if the certificate has expired (see kubelet.certificate-dates) or is missing. With rotateCertificates, " +
			"kubelet-client-current.pem in --cert-dir must contain a certificate and its key if the file exists.",
		Remedy:   certificateRemedy,
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/troubleshooting-kubeadm/#kubelet-client-cert",
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
		Remedy:   certificateRemedy,
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/troubleshooting-kubeadm/#kubelet-client-cert",
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
		if runs, err := kubeletRuns(h); !runs || err != nil {
			return renewed, err
		}
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
		s.Differs("no certificate and key in "+rotated.from, "remove "+rotated.from+"; if the kubeconfig names that file, join the node again")
		return s, nil
	}
	bootstrap := k.Flags["bootstrap-kubeconfig"].Value
	if bootstrap != "" {
		if exists, err := h.Files.Exists(bootstrap); err != nil || exists {
			s.Skip = "kubelet requests its certificate with " + bootstrap
			return s, err
		}
	}
	c, err := clientCertificate(h, kubeconfig)
	if !exits && rotated.isPresent() && now.Before(rotated.until) { // then the kubeconfig's is used again (getCurrentCertificateOrBootstrap)
		c, err = rotated, nil
	}
	var unusable unusableError
	switch {
	case errors.Is(err, errNoContext), errors.Is(err, errNotParsed) && bootstrap == "":
		s.Skip = kubeconfig + " has no usable context"
		return s, nil
	case errors.Is(err, fs.ErrNotExist) && k.Holder != "" && k.Flags["kubeconfig"].From.Source == k.Holder:
		s.Skip = "the program in " + k.Holder + " writes " + kubeconfig + " before it starts kubelet"
		return s, nil
	case errors.Is(err, fs.ErrNotExist), errors.As(err, &unusable) && bootstrap != "":
		s.Evidence = []checks.Evidence{checks.Seen(kubeconfig, err.Error())}
		if !exits {
			s.Skip = "no certificate, see kubelet.certificate"
			return s, nil
		}
		s.Differs("missing, and no bootstrap kubeconfig", "join the node again, or provide a bootstrap kubeconfig")
		return s, nil
	case err != nil:
		return s, err
	case !c.isPresent() && bootstrap != "" && exits: // with a bootstrap kubeconfig, kubelet requires one (isClientConfigStillValid)
		s.Evidence = []checks.Evidence{checks.Seen(kubeconfig, "no user with a certificate"), checks.Seen(bootstrap, "missing")}
		s.Differs("no certificate in "+kubeconfig+", and no bootstrap kubeconfig", "join the node again, or provide a bootstrap kubeconfig, or "+
			"remove --bootstrap-kubeconfig from kubelet's flags")
		return s, nil
	case !c.isPresent():
		s.Skip = kubeconfig + " has no client certificate"
		return s, nil
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

// isPresent reports whether there is a certificate, valid or not.
func (c clientAuth) isPresent() bool { return !c.until.IsZero() }

// errNoContext reports that the current context of a kubeconfig does not exist.
var errNoContext = errors.New("the kubeconfig has no usable context")

var errNotParsed = errors.New("not a kubeconfig")

// unusableError reports that a kubeconfig, or a file that it names, contains no usable certificate.
type unusableError struct{ error }

func (e unusableError) Unwrap() error { return e.error }

// rotatedCertificate returns the certificate that kubelet rotates. broken is the reason why kubelet
// cannot load it and exits (getCurrentCertificateOrBootstrap in client-go/util/certificate). The
// certificate is empty if kubelet does not rotate certificates or has not rotated one yet.
func rotatedCertificate(h *host.Host, k config.Kubelet) (c clientAuth, broken, err error) {
	if k.Values["rotateCertificates"].Value != "true" {
		return c, nil, nil
	}
	file := rotatedFile(k)
	text, err := config.As(h.Files, config.Certificate).ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil, nil
	}
	if err != nil {
		return c, nil, err
	}
	c, broken = readChain(text, file)
	if broken == nil && !config.HasPrivateKey(text) {
		broken = fmt.Errorf("%s contains no PEM private key", file)
	}
	return c, broken, nil
}

func rotatedFile(k config.Kubelet) string {
	return path.Join(cmp.Or(k.Flags["cert-dir"].Value, "/var/lib/kubelet/pki"), "kubelet-client-current.pem")
}

// clientCertificate returns the certificate of the user in a kubeconfig's current context, or an
// empty one if that user authenticates in another way.
func clientCertificate(h *host.Host, kubeconfig string) (none clientAuth, err error) {
	text, err := h.Files.ReadFile(kubeconfig)
	if err != nil {
		return none, err
	}
	file, err := config.ParseKubeClient(text)
	if err != nil {
		return none, unusableError{fmt.Errorf("reading %s: %w: %w", kubeconfig, errNotParsed, err)}
	}
	chosen, err := file.Choose()
	if err != nil && !errors.Is(err, config.ErrNoUser) || file.CurrentContext == "" && len(bytes.TrimSpace(text)) > 0 {
		return none, errNoContext
	}
	user, from := chosen.User, kubeconfig
	var encoded []byte
	switch {
	case user.CertificateData != "":
		if encoded, err = base64.StdEncoding.DecodeString(user.CertificateData); err != nil {
			return none, unusableError{fmt.Errorf("reading client-certificate-data of %s: %w", kubeconfig, err)}
		}
	case user.Certificate != "":
		from = user.Certificate
		if !path.IsAbs(from) {
			from = path.Join(path.Dir(kubeconfig), from)
		}
		if encoded, err = config.As(h.Files, config.Certificate).ReadFile(from); err != nil {
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

// readChain reads PEM certificates. It returns the name of the first one and the period in which all are valid: kubelet requires every
// certificate of the file to be valid (isClientConfigStillValid). With an error, only the file name is set.
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
		return none, fmt.Errorf("%s contains no PEM certificate", from)
	}
	return c, nil
}
