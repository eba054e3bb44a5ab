package kubelet

import (
	"errors"
	"io/fs"
	"path"

	"go.yaml.in/yaml/v3"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
)

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
