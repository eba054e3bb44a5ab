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

	"nodegate/internal/host/config"
)

// RunPlugin runs the credential plugin that a kubeconfig names, with additional variables, and
// returns its output. host.Credential is one: it refuses a plugin that users other than root may
// write.
type RunPlugin func(ctx context.Context, kubeconfig, command string, args, env []string) ([]byte, error)

// Plugins gets credentials from the plugins of kubeconfigs, and caches them until they expire.
type Plugins struct {
	run   RunPlugin
	mu    sync.Mutex
	cache map[string]credential // by the plugin's command line and variables
}

// NewPlugins returns a Plugins with an empty cache.
func NewPlugins(run RunPlugin) *Plugins { return &Plugins{run: run, cache: map[string]credential{}} }

// exec is a plugin's configuration in a kubeconfig.
type exec config.KubePlugin

const execGroup = "client.authentication.k8s.io"

// credential is an ExecCredential.
type credential struct {
	APIVersion, Kind string
	Status           struct {
		ExpirationTimestamp time.Time // zero: valid while the client exists, or until the server rejects it
		Token               string
		Certificate         string `json:"clientCertificateData"`
		Key                 string `json:"clientKeyData"`
	}
}

const (
	pluginTime  = 15 * time.Second // a plugin that queries its cloud takes a second or two
	renewBefore = 10 * time.Second // a credential is renewed this long before it expires
)

// configureClient makes a client authenticate with the plugin's credentials. The plugin runs at the
// first request.
func (p *Plugins) configureClient(c *Client, config *tls.Config, e exec, kubeconfig string, in cluster, authority []byte) error {
	switch {
	case e.Command == "":
		return errors.New("exec has no command")
	case e.APIVersion != execGroup+"/v1" && e.APIVersion != execGroup+"/v1beta1":
		return fmt.Errorf("exec has an unknown apiVersion; known versions: %s/v1 and v1beta1", execGroup)
	case e.InteractiveMode == "Always":
		return fmt.Errorf("the credential plugin %s needs a terminal (interactiveMode is Always), which a node does not have", e.Command)
	}
	if strings.Contains(e.Command, "/") {
		e.Command = resolvePath(filepath.Dir(kubeconfig), e.Command)
	}
	env, err := e.environment(in, authority)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%q", []any{kubeconfig, e.Command, e.Args, env})
	var mine credential // a credential without an expiry time belongs to this client only
	get := func(ctx context.Context) (credential, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if kept := p.cache[key]; time.Until(kept.Status.ExpirationTimestamp) > renewBefore {
			return kept, nil
		}
		if mine.Kind != "" {
			return mine, nil
		}
		got, err := p.runPlugin(ctx, e, kubeconfig, env)
		switch {
		case err != nil:
			err = fmt.Errorf("credential plugin %s: %w", e.Command, err)
		case got.Status.ExpirationTimestamp.IsZero():
			mine = got
		default:
			p.cache[key] = got
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
		delete(p.cache, key)
		mine = credential{}
	}
	return nil
}

// environment returns the variables for a plugin.
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

// runPlugin runs a plugin. No error contains its output, which may be a secret.
func (p *Plugins) runPlugin(ctx context.Context, e exec, kubeconfig string, env []string) (got credential, err error) {
	ctx, cancel := context.WithTimeout(ctx, pluginTime)
	defer cancel()
	text, err := p.run(ctx, kubeconfig, e.Command, e.Args, env)
	if err != nil {
		if e.InstallHint != "" {
			err = fmt.Errorf("%w; hint in the kubeconfig: %.300s", err, e.InstallHint)
		}
		return credential{}, err
	}
	if json.Unmarshal(text, &got) != nil || got.Kind != "ExecCredential" {
		return credential{}, errors.New("its output is not an ExecCredential")
	}
	s := got.Status
	switch {
	case got.APIVersion != e.APIVersion:
		return credential{}, fmt.Errorf("its output has another apiVersion than %s, which the kubeconfig requires", e.APIVersion)
	case s.Token == "" && s.Certificate == "":
		return credential{}, errors.New("its output has neither a token nor a certificate")
	case !s.ExpirationTimestamp.IsZero() && time.Until(s.ExpirationTimestamp) <= 0:
		return credential{}, fmt.Errorf("its credential expired at %s; check the machine's clock",
			s.ExpirationTimestamp.UTC().Format(time.RFC3339))
	}
	return got, nil
}
