package kube

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// RunPlugin runs a credential plugin that a kubeconfig names, with more variables, and returns what it printed. host.Credential
// is one, which refuses what others than root may write.
type RunPlugin func(ctx context.Context, kubeconfig, command string, args, env []string) ([]byte, error)

// Plugins gets credentials from the plugins of kubeconfigs, and keeps them until they expire.
type Plugins struct {
	run  RunPlugin
	mu   sync.Mutex
	kept map[string]credential // by what the plugin was asked
}

// NewPlugins returns a Plugins that keeps nothing yet.
func NewPlugins(run RunPlugin) *Plugins { return &Plugins{run: run, kept: map[string]credential{}} }

// exec is what a kubeconfig says of a plugin:
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
type exec struct {
	APIVersion         string `yaml:"apiVersion"`
	Command            string
	Args               []string
	Env                []struct{ Name, Value string }
	InstallHint        string `yaml:"installHint"`
	InteractiveMode    string `yaml:"interactiveMode"`
	ProvideClusterInfo bool   `yaml:"provideClusterInfo"`
}

const execGroup = "client.authentication.k8s.io"

// credential is an ExecCredential.
type credential struct {
	APIVersion, Kind string
	Status           struct {
		ExpirationTimestamp time.Time // zero: as long as the client exists, or until it is refused
		Token               string
		Certificate         string `json:"clientCertificateData"`
		Key                 string `json:"clientKeyData"`
	}
}

const (
	pluginTime = 15 * time.Second // a plugin that asks its cloud takes a second or two
	soon       = 10 * time.Second // what expires so soon is asked for again
)

// use lets a client prove who it is with what a plugin says. The plugin runs at the first request.
func (p *Plugins) use(c *Client, config *tls.Config, e exec, kubeconfig string, in cluster, authority []byte) error {
	switch {
	case e.Command == "":
		return errors.New("exec has no command")
	case e.APIVersion != execGroup+"/v1" && e.APIVersion != execGroup+"/v1beta1":
		return fmt.Errorf("exec has apiVersion %q; nodegate knows %s/v1 and v1beta1", e.APIVersion, execGroup)
	case e.InteractiveMode == "Always":
		return fmt.Errorf("the credential plugin %s wants a terminal (interactiveMode is Always), and a node has none", e.Command)
	}
	if strings.Contains(e.Command, "/") {
		e.Command = beside(filepath.Dir(kubeconfig), e.Command)
	}
	env, err := e.environment(in, authority)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%q", []any{kubeconfig, e.Command, e.Args, env})
	var mine credential // what has no end is this client's only
	get := func(ctx context.Context) (credential, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if kept := p.kept[key]; time.Until(kept.Status.ExpirationTimestamp) > soon {
			return kept, nil
		}
		if mine.Kind != "" {
			return mine, nil
		}
		got, err := p.ask(ctx, e, kubeconfig, env)
		switch {
		case err != nil:
			err = fmt.Errorf("credential plugin %s: %w", e.Command, err)
		case got.Status.ExpirationTimestamp.IsZero():
			mine = got
		default:
			p.kept[key] = got
		}
		return got, err
	}
	c.token = func(ctx context.Context) (string, error) {
		got, err := get(ctx)
		return got.Status.Token, err
	}
	config.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		got, err := get(info.Context())
		if err != nil || got.Status.Certificate == "" {
			return &tls.Certificate{}, err
		}
		pair, err := tls.X509KeyPair([]byte(got.Status.Certificate), []byte(got.Status.Key))
		return &pair, err
	}
	c.refused = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.kept, key)
		mine = credential{}
	}
	return nil
}

// environment returns the variables of a plugin.
func (e exec) environment(in cluster, authority []byte) ([]string, error) {
	type clusterInfo struct {
		Server     string `json:"server"`
		ServerName string `json:"tls-server-name,omitempty"`
		Insecure   bool   `json:"insecure-skip-tls-verify,omitempty"`
		Authority  []byte `json:"certificate-authority-data,omitempty"`
		Config     any    `json:"config,omitempty"`
	}
	spec := map[string]any{"interactive": false}
	if e.ProvideClusterInfo {
		info := clusterInfo{in.Server, in.ServerName, in.Insecure, authority, nil}
		for _, x := range in.Extensions {
			if x.Name == execGroup+"/exec" {
				info.Config = x.Extension
			}
		}
		spec["cluster"] = info
	}
	text, err := json.Marshal(map[string]any{"apiVersion": e.APIVersion, "kind": "ExecCredential", "spec": spec})
	if err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	var env []string
	for _, v := range e.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	return append(env, "KUBERNETES_EXEC_INFO="+string(text)), nil
}

// ask runs a plugin. No error contains what it printed: that may be a secret.
func (p *Plugins) ask(ctx context.Context, e exec, kubeconfig string, env []string) (got credential, err error) {
	ctx, cancel := context.WithTimeout(ctx, pluginTime)
	defer cancel()
	text, err := p.run(ctx, kubeconfig, e.Command, e.Args, env)
	if err != nil {
		if e.InstallHint != "" {
			err = fmt.Errorf("%w; the kubeconfig says: %.300s", err, e.InstallHint)
		}
		return credential{}, err
	}
	if json.Unmarshal(text, &got) != nil || got.Kind != "ExecCredential" {
		return credential{}, errors.New("it printed no ExecCredential")
	}
	s := got.Status
	switch {
	case got.APIVersion != e.APIVersion:
		return credential{}, fmt.Errorf("it printed apiVersion %.80q; the kubeconfig asks for %s", got.APIVersion, e.APIVersion)
	case s.Token == "" && s.Certificate == "":
		return credential{}, errors.New("it printed no token and no certificate")
	case !s.ExpirationTimestamp.IsZero() && time.Until(s.ExpirationTimestamp) <= 0:
		return credential{}, fmt.Errorf("what it printed expired at %s; is the clock right?", s.ExpirationTimestamp.UTC().Format(time.RFC3339))
	}
	return got, nil
}
