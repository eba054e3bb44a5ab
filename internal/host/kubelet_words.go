package host

import (
	"bytes"
	"io"
	"os"

	"nodegate/internal/host/config"
	"nodegate/internal/host/file"
)

// withoutPrivate returns kubelet's words without the values that it knows from files that only root may read.
func withoutPrivate(text string) string {
	return KubeletWords(text, machineFiles{}, func(name string) bool {
		info, err := os.Stat(name)
		return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o004 == 0
	}, wordsIn)
}

// KubeletWords returns kubelet's words without the values in its configuration files that are private. contains returns which of several
// words a program's file contains: they are kubelet's own.
func KubeletWords(
	text string, files config.Files, private func(name string) bool, contains func(program string, words []string) map[string]bool,
) string {
	if text == "" {
		return ""
	}
	k, _ := config.ReadKubelet(files) // with an error, the command line is known
	names := k.Configs
	for _, flag := range []string{"config", "kubeconfig", "bootstrap-kubeconfig", "image-credential-provider-config"} {
		names = append(names, k.Flags[flag].Value)
	}
	var texts [][]byte
	for _, name := range names {
		if name != "" && private(name) {
			text, _ := files.ReadFile(name) // kubelet cannot quote a file that cannot be read
			texts = append(texts, text)
		}
	}
	return config.LeaveOut(text, texts, func(words []string) map[string]bool {
		if k.Command == nil {
			return nil
		}
		return contains(k.Command[0], words)
	})
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
