package kubelet

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
)

// namedFiles returns why kubelet exits over the certificates that its configuration names, and adds to s where they are named: each must be
// there, and be one.
func namedFiles(h *host.Host, k config.Kubelet, s *checks.State) (wrong []string, err error) {
	for _, key := range []string{"authentication.x509.clientCAFile", "tlsCertFile", "tlsPrivateKeyFile"} {
		name, from := k.Values[key].Value, k.Values[key].From.Source
		dropIn := k.DropIns != "" && strings.HasPrefix(from, k.DropIns+"/") // there a relative path is one of kubelet's working directory
		if name != "" && !path.IsAbs(name) && slices.Contains(k.Configs, from) && !dropIn {
			name = path.Join(path.Dir(from), name)
		}
		if !path.IsAbs(name) {
			continue
		}
		text, found, err := h.ReadIfAny(name)
		if err != nil {
			return nil, fmt.Errorf("reading %s of kubelet: %w", key, err)
		}
		mistake := name + " is missing"
		if found {
			mistake = pemMistake(name, text, key != "tlsPrivateKeyFile", key == "tlsPrivateKeyFile")
		}
		if mistake != "" {
			s.Evidence = append(s.Evidence, checks.Seen(k.Values[key].From.Source, k.Values[key].From.Text))
			wrong = append(wrong, mistake)
		}
	}
	return wrong, nil
}

// ownCertificate returns why kubelet exits over the certificate that it serves with and has made or been given itself: with
// serverTLSBootstrap the one in kubelet-server-current.pem, otherwise, where none is named, kubelet.crt with kubelet.key, both or none
// (InitializeTLS in cmd/kubelet/app/server.go). remedy is how it gets another.
func ownCertificate(h *host.Host, k config.Kubelet) (wrong []string, remedy string, err error) {
	dir := cmp.Or(k.Flags["cert-dir"].Value, "/var/lib/kubelet/pki")
	type part struct {
		name             string
		certificate, key bool
	}
	parts := []part{{dir + "/kubelet.crt", true, false}, {dir + "/kubelet.key", false, true}}
	switch {
	case k.Values["serverTLSBootstrap"].Value == "true":
		parts = []part{{dir + "/kubelet-server-current.pem", true, true}}
	case k.Values["tlsCertFile"].Value != "" || k.Values["tlsPrivateKeyFile"].Value != "":
		return nil, "", nil
	}
	var missing []string
	for _, p := range parts {
		text, found, err := h.ReadIfAny(p.name)
		if err != nil {
			return nil, "", err
		}
		if !found {
			missing = append(missing, p.name+" is missing")
		} else if mistake := pemMistake(p.name, text, p.certificate, p.key); mistake != "" {
			wrong = append(wrong, mistake)
		}
	}
	if len(missing) < len(parts) {
		wrong = append(wrong, missing...)
	}
	names := []string{"remove"}
	for _, p := range parts {
		names = append(names, p.name)
	}
	return wrong, strings.Join(names, " ") + ": kubelet gets a new certificate", nil
}

// pemMistake returns why a file is no certificate, or no private key, or "".
func pemMistake(name string, text []byte, certificate, key bool) string {
	if certificate {
		if _, err := readChain(text, name); err != nil {
			return err.Error()
		}
	}
	if key && !config.HasPrivateKey(text) {
		return name + " has no private key in PEM"
	}
	return ""
}

// credentialProviders returns why kubelet exits over the programs that get it credentials for images, and adds to s what names them: where
// one of the two flags is given, the folder and the configuration must be there, and in the folder each program that this names
// (RegisterCredentialProviderPlugins in pkg/credentialprovider/plugin). A configuration that is a folder is not read.
func credentialProviders(h *host.Host, k config.Kubelet, s *checks.State) (wrong []string, err error) {
	const fileFlag, dirFlag = "image-credential-provider-config", "image-credential-provider-bin-dir"
	file, dir := k.Flags[fileFlag], k.Flags[dirFlag]
	switch {
	case file.Value == "" && dir.Value == "":
		return nil, nil
	case file.Value == "":
		wrong = append(wrong, "--"+dirFlag+" is given without --"+fileFlag)
	case dir.Value == "":
		wrong = append(wrong, "--"+fileFlag+" is given without --"+dirFlag)
	case !path.IsAbs(file.Value), !path.IsAbs(dir.Value):
		return nil, nil
	default:
		if wrong, err = providerFiles(h, file.Value, dir.Value); err != nil {
			return nil, err
		}
	}
	for _, f := range []config.KubeletValue{file, dir} {
		if wrong != nil && f.Value != "" {
			s.Evidence = append(s.Evidence, checks.Seen(f.From.Source, f.From.Text))
		}
	}
	return wrong, nil
}

func providerFiles(h *host.Host, file, dir string) (wrong []string, err error) {
	_, err = h.Files.ReadDir(dir)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case missing:
		wrong = append(wrong, dir+" is missing")
	case err != nil:
		return nil, err
	}
	if _, noDir := h.Files.ReadDir(file); noDir == nil {
		return wrong, nil
	}
	text, found, err := config.ReadYAML(h.Files, file)
	if err != nil {
		return nil, err
	}
	if !found {
		return append(wrong, file+" is missing"), nil
	}
	var providers struct {
		Providers []struct{ Name string }
	}
	if err := yaml.Unmarshal(text, &providers); err != nil || len(providers.Providers) == 0 {
		return append(wrong, file+" names no provider"), nil
	}
	for _, p := range providers.Providers {
		exists, err := h.Files.Exists(path.Join(dir, p.Name))
		if err != nil {
			return nil, err
		}
		if !exists && !missing {
			wrong = append(wrong, path.Join(dir, p.Name)+" is missing")
		}
	}
	return wrong, nil
}
