package kubelet

import (
	"cmp"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"go.yaml.in/yaml/v3"

	"nodegate/internal/host"
	"nodegate/internal/host/config"
)

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
