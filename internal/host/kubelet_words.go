package host

import (
	"slices"

	"nodegate/internal/host/config"
)

// KubeletWords returns a message of kubelet without values that not every user may read: only its own words, those of its command line,
// and those of its configuration files.
func KubeletWords(text string, files Files) string {
	if text == "" {
		return ""
	}
	k, _ := config.ReadKubelet(files) // with an error, the command line is known
	names, known := k.Configs, slices.Clone(k.Command)
	for _, flag := range []string{"config", "kubeconfig", "bootstrap-kubeconfig", "image-credential-provider-config"} {
		names = append(names, k.Flags[flag].Value)
	}
	for _, name := range names {
		if name != "" {
			text, _ := files.ReadFile(name) // kubelet cannot quote a file that cannot be read
			known = append(known, string(text))
		}
	}
	return words(files).Plain(config.PlainMessage(text, known...), "")
}
