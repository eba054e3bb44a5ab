package host

import (
	"slices"

	"nodegate/internal/host/config"
)

// kubeletWords returns kubelet's words without values that checks may not see.
func kubeletWords(text string) string {
	return KubeletWords(text, Shown(machineFiles{}, new(config.Filter)))
}

// KubeletWords returns the words of kubelet that its messages have, or on its command line, or in its configuration files as the
// filter shows them.
func KubeletWords(text string, files config.Files) string {
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
	return config.PlainMessage(text, known...)
}
