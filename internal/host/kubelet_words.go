package host

import (
	"bytes"
	"io"
	"slices"

	"nodegate/internal/host/config"
	"nodegate/internal/host/file"
)

// kubeletWords returns kubelet's words without values that checks may not see.
func kubeletWords(text string) string {
	return KubeletWords(text, Shown(machineFiles{}, new(config.Filter)), wordsIn)
}

// KubeletWords returns the words of kubelet that its messages have, or on its command line, or in its configuration files as the
// filter shows them. contains returns which of several words a program's file contains: they are kubelet's own.
func KubeletWords(text string, files config.Files, contains func(program string, words []string) map[string]bool) string {
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
	return config.FilterMessage(text, func(words []string) map[string]bool {
		if k.Command == nil {
			return nil
		}
		return contains(k.Command[0], words)
	}, known...)
}

// wordsIn returns which of the words a program's file contains.
func wordsIn(program string, words []string) map[string]bool {
	found := map[string]bool{}
	f, err := file.Open(program)
	if err != nil {
		return nil
	}
	defer f.Close()
	const longest = 1 << 10
	part, kept := make([]byte, 1<<20), 0
	for {
		n, err := io.ReadFull(f, part[kept:])
		for _, word := range words {
			found[word] = found[word] || bytes.Contains(part[:kept+n], []byte(word))
		}
		if err != nil {
			return found
		}
		kept = copy(part, part[kept+n-longest:kept+n])
	}
}
