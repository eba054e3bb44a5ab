package config

import (
	"errors"
)

// KubeClient is a kubeconfig: the part of client-go's format that nodegate uses.
type KubeClient struct {
	CurrentContext string `yaml:"current-context"`
	Clusters       []struct {
		Name    string
		Cluster KubeCluster
	}
	Users []struct {
		Name string
		User KubeUser
	}
	Contexts []struct {
		Name    string
		Context struct{ Cluster, User string }
	}
}

// KubeCluster is an API server and how to verify it.
type KubeCluster struct {
	Server        string
	Authority     string `yaml:"certificate-authority"`
	AuthorityData string `yaml:"certificate-authority-data"`
	ServerName    string `yaml:"tls-server-name"`
	Insecure      bool   `yaml:"insecure-skip-tls-verify"`
	Proxy         string `yaml:"proxy-url"`
	Extensions    []struct {
		Name      string
		Extension any
	}
}

// KubeUser is a credential, or how to get one.
type KubeUser struct {
	Certificate     string `yaml:"client-certificate"`
	CertificateData string `yaml:"client-certificate-data"`
	Key             string `yaml:"client-key"`
	KeyData         string `yaml:"client-key-data"`
	Token           string
	TokenFile       string `yaml:"tokenFile"`
	Username        string
	Password        string
	Exec            *KubePlugin
	AuthProvider    any `yaml:"auth-provider"`
}

// KubePlugin is a credential plugin:
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
type KubePlugin struct {
	APIVersion         string `yaml:"apiVersion"`
	Command            string
	Args               []string
	Env                []struct{ Name, Value string }
	InstallHint        string `yaml:"installHint"`
	InteractiveMode    string `yaml:"interactiveMode"`
	ProvideClusterInfo bool   `yaml:"provideClusterInfo"`
}

// ParseKubeClient parses a kubeconfig.
func ParseKubeClient(text []byte) (k KubeClient, err error) {
	return k, UnmarshalYAML(text, &k)
}

// KubeChoice is what the current context of a kubeconfig selects.
type KubeChoice struct {
	ClusterName, UserName string
	Cluster               KubeCluster
	User                  KubeUser
}

// ErrNoUser reports that the current context names a user that does not exist. client-go then sends no credential.
var ErrNoUser = errors.New("the context names a user that does not exist")

// Choose returns the cluster and the user of the current context. As with client-go, both are empty if no current context is set
// (DirectClientConfig in tools/clientcmd/client_config.go). With ErrNoUser, the cluster is set.
func (k KubeClient) Choose() (c KubeChoice, err error) {
	found := k.CurrentContext == ""
	for _, named := range k.Contexts {
		if !found && named.Name == k.CurrentContext {
			found, c.ClusterName, c.UserName = true, named.Context.Cluster, named.Context.User
		}
	}
	if !found {
		return c, errors.New("current-context names a context that does not exist")
	}
	found = c.ClusterName == ""
	for _, named := range k.Clusters {
		if !found && named.Name == c.ClusterName {
			found, c.Cluster = true, named.Cluster
		}
	}
	if !found {
		return c, errors.New("the context names a cluster that does not exist")
	}
	found = c.UserName == ""
	for _, named := range k.Users {
		if !found && named.Name == c.UserName {
			found, c.User = true, named.User
		}
	}
	if !found {
		return c, ErrNoUser
	}
	return c, nil
}
