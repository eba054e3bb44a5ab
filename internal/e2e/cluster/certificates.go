package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// authority is the certificate authority of one cluster. Its files are in one directory: ca.crt, ca.key, NAME.crt, NAME.key.
type authority struct {
	dir         string
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	serial      int64
}

const validFor = 24 * time.Hour

func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cluster"},
		NotBefore: time.Now().Add(-validFor), NotAfter: time.Now().Add(validFor), // the clock of an emulated machine may be slow
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, key: key, certificate: template, serial: 1}
	return a, a.write("ca", der, key)
}

// issue writes NAME.crt and NAME.key for a user and its groups. The certificate is also a server's at the given hosts.
func (a *authority) issue(name, user string, groups []string, hosts ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	a.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: user, Organization: groups},
		NotBefore: a.certificate.NotBefore, NotAfter: a.certificate.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("issuing a certificate for %s: %w", user, err)
	}
	return a.write(name, der, key)
}

func (a *authority) write(name string, der []byte, key *ecdsa.PrivateKey) error {
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	for suffix, block := range map[string]*pem.Block{
		".crt": {Type: "CERTIFICATE", Bytes: der},
		".key": {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(a.filePath(name+suffix), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (a *authority) filePath(name string) string { return filepath.Join(a.dir, name) }

// writeUserKubeconfig writes NAME.kubeconfig. It embeds the certificates of that name, so that it can be copied to a machine.
func (a *authority) writeUserKubeconfig(name, server string) (string, error) {
	crt, err := a.encodeFile(name + ".crt")
	if err != nil {
		return "", err
	}
	key, err := a.encodeFile(name + ".key")
	if err != nil {
		return "", err
	}
	return a.writeKubeconfig(name, server, fmt.Sprintf("client-certificate-data: %s, client-key-data: %s", crt, key))
}

// writeTokenKubeconfig writes NAME.kubeconfig for the holder of a token.
func (a *authority) writeTokenKubeconfig(name, server, token string) (string, error) {
	return a.writeKubeconfig(name, server, "token: "+token)
}

func (a *authority) writeKubeconfig(name, server, credentials string) (string, error) {
	ca, err := a.encodeFile("ca.crt")
	if err != nil {
		return "", err
	}
	text := strings.NewReplacer("NAME", name, "SERVER", server, "AUTHORITY", ca, "CREDENTIALS", credentials).Replace(`apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {server: "SERVER", certificate-authority-data: AUTHORITY}}]
users: [{name: NAME, user: {CREDENTIALS}}]
contexts: [{name: NAME, context: {cluster: cluster, user: NAME}}]
current-context: NAME
`)
	file := a.filePath(name + ".kubeconfig")
	return file, os.WriteFile(file, []byte(text), 0o600)
}
