package kubelet

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
)

// checkNamedFiles returns the faults of the certificate files that kubelet's configuration names.
// Each must exist and be valid, or kubelet exits. It ignores files that are written later, and adds
// the settings that name faulty files to the evidence in s.
func checkNamedFiles(h *host.Host, k config.Kubelet, s *checks.State, later func(name string) bool) (wrong []string, err error) {
	for _, key := range []string{"authentication.x509.clientCAFile", "tlsCertFile", "tlsPrivateKeyFile"} {
		name, from := k.Values[key].Value, k.Values[key].From.Source
		dropIn := k.DropIns != "" && strings.HasPrefix(from, k.DropIns+"/") // in a drop-in, a relative path starts at kubelet's working directory
		if name != "" && !path.IsAbs(name) && slices.Contains(k.Configs, from) && !dropIn {
			name = path.Join(path.Dir(from), name)
		}
		if !path.IsAbs(name) {
			continue
		}
		text, found, err := config.ReadIfAny(config.As(h.Files, config.Certificate), name)
		if err != nil {
			return nil, fmt.Errorf("reading %s of kubelet: %w", key, err)
		}
		mistake := name + " is missing"
		if found {
			mistake = pemMistake(name, text, key != "tlsPrivateKeyFile", key == "tlsPrivateKeyFile")
		}
		if mistake != "" && !later(name) {
			s.Evidence = append(s.Evidence, checks.Seen(k.Values[key].From.Source, k.Values[key].From.Text))
			wrong = append(wrong, mistake)
		}
	}
	return wrong, nil
}

// checkOwnCertificate returns the faults of the serving certificate that kubelet generated or
// requested itself. With serverTLSBootstrap that is kubelet-server-current.pem. Otherwise, if the
// configuration names no certificate, it is kubelet.crt and kubelet.key, which must both exist or
// both be absent (InitializeTLS in cmd/kubelet/app/server.go). remedy gets a new certificate.
func checkOwnCertificate(h *host.Host, k config.Kubelet) (wrong []string, remedy string, err error) {
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
		text, found, err := config.ReadIfAny(config.As(h.Files, config.Certificate), p.name)
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
	return wrong, strings.Join(names, " ") + "; kubelet then gets a new certificate", nil
}

// pemMistake returns why a file is not a PEM certificate or private key, or "".
func pemMistake(name string, text []byte, certificate, key bool) string {
	if certificate {
		if _, err := readChain(text, name); err != nil {
			return err.Error()
		}
	}
	if key && !config.HasPrivateKey(text) {
		return name + " contains no PEM private key"
	}
	return ""
}

// checkCredentialProviders returns the faults of the image credential providers over which kubelet
// exits, and adds the flags that name them to the evidence in s. If one of the two flags is given,
// the directory and the configuration must exist, and the directory must contain each program that
// the configuration names (RegisterCredentialProviderPlugins in pkg/credentialprovider/plugin). A
// configuration that is a directory is not read.
func checkCredentialProviders(h *host.Host, k config.Kubelet, s *checks.State) (wrong []string, err error) {
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
		if wrong, err = checkProviderFiles(h, file.Value, dir.Value); err != nil {
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

func checkProviderFiles(h *host.Host, file, dir string) (wrong []string, err error) {
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
	text, found, err := config.ReadYAML(config.As(h.Files, config.CredentialProviders), file)
	if err != nil {
		return nil, err
	}
	if !found {
		return append(wrong, file+" is missing"), nil
	}
	for _, why := range providerMistakes(text) {
		wrong = append(wrong, file+" "+why)
	}
	if wrong != nil {
		return wrong, nil
	}
	for _, p := range parseProviders(text) {
		program := path.Join(dir, p.Name)
		head, err := h.Files.Head(program)
		if errors.Is(err, host.ErrNotRecorded) { // an older snapshot
			head.Mode = 0o111
			if exists, unknown := h.Files.Exists(program); unknown != nil || exists {
				err = unknown
			} else {
				err = fs.ErrNotExist
			}
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			wrong = append(wrong, program+" is missing")
		case err != nil:
			return nil, err
		case !head.MayExecute(): // exec.LookPath
			wrong = append(wrong, program+" is not executable")
		}
	}
	return wrong, nil
}

// provider is an entry in a CredentialProviderConfig.
type provider struct {
	Name     string
	Version  string   `yaml:"apiVersion"`
	Images   []string `yaml:"matchImages"`
	Duration string   `yaml:"defaultCacheDuration"`
}

func parseProviders(text []byte) []provider {
	var file struct{ Providers []provider }
	if yaml.Unmarshal(text, &file) != nil {
		return nil
	}
	return file.Providers
}

// providerMistakes returns the mistakes in a CredentialProviderConfig over which kubelet exits, as ends of a sentence that begins with
// the file's name (validateCredentialProviderConfig in pkg/credentialprovider/plugin/config.go).
func providerMistakes(text []byte) (wrong []string) {
	const versions = "credentialprovider.kubelet.k8s.io/"
	all := parseProviders(text)
	if len(all) == 0 {
		return []string{"lists no provider"}
	}
	seen := map[string]bool{}
	for _, p := range all {
		if config.IsLeftOut(p.Version) { // an older snapshot
			continue
		}
		version, known := strings.CutPrefix(p.Version, versions)
		duration, err := time.ParseDuration(p.Duration)
		switch {
		case p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ "):
			wrong = append(wrong, fmt.Sprintf("has a provider named %q", p.Name))
		case seen[p.Name]:
			wrong = append(wrong, "lists "+p.Name+" twice")
		case !known || !slices.Contains([]string{"v1", "v1beta1", "v1alpha1"}, version):
			wrong = append(wrong, fmt.Sprintf("has apiVersion %q for %s; it must be %sv1", p.Version, p.Name, versions))
		case len(p.Images) == 0:
			wrong = append(wrong, "has no matchImages for "+p.Name)
		case err != nil || duration < 0:
			wrong = append(wrong, fmt.Sprintf("has defaultCacheDuration %q for %s", p.Duration, p.Name))
		}
		seen[p.Name] = true
	}
	return wrong
}
