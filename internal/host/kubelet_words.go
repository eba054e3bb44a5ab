package host

import "nodegate/internal/host/config"

// KubeletWords returns a message of kubelet without values that not every user may read: its own words, the names of its options, and
// the words of the files that every user may read.
func KubeletWords(text string, files Files) string {
	if text == "" {
		return ""
	}
	k, _ := config.ReadKubelet(files) // with an error, the flags are known
	names, known := k.Configs, k.Command[:min(1, len(k.Command))]
	for flag, v := range k.Flags {
		known = append(known, "--"+flag)
		if !isPrivate(files, v.From.Source) {
			known = append(known, v.Value)
		}
	}
	for _, flag := range []string{"config", "kubeconfig", "bootstrap-kubeconfig", "image-credential-provider-config"} {
		names = append(names, k.Flags[flag].Value)
	}
	for _, name := range names {
		if name != "" && !isPrivate(files, name) {
			text, _ := files.ReadFile(name) // kubelet cannot quote a file that cannot be read
			known = append(known, string(text))
		}
	}
	return config.PlainMessage(text, known...)
}
