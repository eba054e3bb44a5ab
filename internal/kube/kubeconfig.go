package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"nodegate/internal/host/config"
	"nodegate/internal/host/file"
)

type (
	kubeconfig config.KubeClient
	cluster    = config.KubeCluster
	user       config.KubeUser
)

// maxConfig limits a kubeconfig, a certificate and a token, in bytes.
const maxConfig = 4 << 20

// FromKubeconfig returns a client of the API server in a kubeconfig's current context. The
// credentials are a certificate, a token, or the output of a credential plugin. Errors name the
// file.
func FromKubeconfig(name string, plugins *Plugins) (*Client, error) {
	text, err := file.Read(name, maxConfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	parsed, err := config.ParseKubeClient(text)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %s: %w", name, err)
	}
	k := kubeconfig(parsed)
	c, err := k.client(name, plugins)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %s: %w", name, err)
	}
	return c, nil
}

func (k *kubeconfig) client(name string, plugins *Plugins) (*Client, error) {
	dir := filepath.Dir(name)
	chosen, err := config.KubeClient(*k).Choose()
	switch {
	case err != nil:
		return nil, err
	case chosen.ClusterName == "":
		return nil, errors.New("current-context names a context that does not exist")
	case chosen.UserName == "":
		return nil, errors.New("the context names no user")
	case chosen.Cluster.Server == "":
		return nil, errors.New("the cluster has no server")
	}
	in, own := chosen.Cluster, user(chosen.User)
	config := &tls.Config{ServerName: in.ServerName, InsecureSkipVerify: in.Insecure}
	authority, err := pem(dir, in.Authority, in.AuthorityData)
	if err == nil && authority != nil {
		config.RootCAs, err = certPool(authority, "certificate-authority")
	}
	if err != nil {
		return nil, err
	}
	client, err := newClient(in.Server, config, nil)
	if err != nil {
		return nil, err
	}
	client.unverified = in.Insecure
	if own.isPlugin() {
		err = plugins.configureClient(client, config, exec(*own.Exec), name, in, authority)
	} else {
		client.token, err = own.credentials(dir, config)
		client.node = nodeOf(config.Certificates)
	}
	if err != nil {
		return nil, fmt.Errorf("user %q: %w", chosen.UserName, err)
	}
	return client, nil
}

// credentials puts a client certificate into config, or returns a token.
func (u user) credentials(dir string, config *tls.Config) (token, error) {
	cert, err := pem(dir, u.Certificate, u.CertificateData)
	if err != nil {
		return nil, err
	}
	key, err := pem(dir, u.Key, u.KeyData)
	if err != nil {
		return nil, err
	}
	switch {
	case cert != nil:
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
		return nil, nil
	case u.TokenFile != "":
		return tokenFile(resolvePath(dir, u.TokenFile)), nil
	case u.Token != "":
		return func(context.Context) (string, error) { return u.Token, nil }, nil
	case u.AuthProvider != nil:
		return nil, errors.New("it uses an auth-provider, which Kubernetes no longer supports; use exec instead, kube-proxy's own kubeconfig " +
			"(kops: /var/lib/kube-proxy/kubeconfig), or `kubectl get endpointslices -A -o json > slices.json` and --endpoints slices.json")
	}
	return nil, fmt.Errorf("it has neither a certificate nor a token")
}

// isPlugin reports whether the credentials come from a plugin. Certificates and tokens take
// precedence, as with kubectl.
func (u user) isPlugin() bool {
	return u.Exec != nil && u.Certificate+u.CertificateData+u.Token+u.TokenFile == ""
}

// nodeUser is the prefix before the node's name in the user name of a node's credentials.
const nodeUser = "system:node:"

// nodeOf returns the node that a client certificate belongs to, "" if it is not a node's.
func nodeOf(certificates []tls.Certificate) string {
	if len(certificates) == 0 || certificates[0].Leaf == nil {
		return ""
	}
	node, found := strings.CutPrefix(certificates[0].Leaf.Subject.CommonName, nodeUser)
	if !found {
		return ""
	}
	return node
}

// pem returns the content of a file or of inline base64, nil if both are unset.
func pem(dir, name, data string) ([]byte, error) {
	if data != "" {
		b, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return nil, fmt.Errorf("inline data is not base64: %w", err)
		}
		return b, nil
	}
	if name == "" {
		return nil, nil
	}
	return file.Read(resolvePath(dir, name), maxConfig)
}

// resolvePath resolves a path as client-go does: relative to the kubeconfig.
func resolvePath(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

func certPool(authority []byte, from string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s contains no certificate", from)
	}
	return pool, nil
}
