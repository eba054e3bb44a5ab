package host

import (
	"context"
	"errors"
	"slices"
	"strings"

	"nodegate/internal/host/config"
)

func kubeletWords(text string) string { return KubeletWords(text, Shown(machineFiles{})) }

// KubeletWords returns the words of kubelet that its messages have, or its command line, or the names and values of its settings that
// checks see.
func KubeletWords(text string, files config.Files) string {
	if text == "" {
		return ""
	}
	k, _ := config.ReadKubelet(files) // with an error, the command line is known
	known := slices.Clone(k.Command)
	for name, v := range k.Values {
		known = append(known, name, strings.ReplaceAll(name, ".", " "), v.Value)
	}
	return config.PlainMessage(text, known...)
}

// Trial runs kubelet with its whole command line and the flags that more returns, which make it exit. It returns kubelet's words as
// Complaint does. No check sees values of kubelet's command line that only root may read, so none can run it.
func (h *Host) Trial(ctx context.Context, more func(config.Kubelet) []string) (string, error) {
	return ask(ctx, h.memo, "error output of", "kubelet", func() (said string, err error) {
		of := h
		if h.asked != nil {
			of = h.asked
		}
		var files config.Files = of.Files
		if source := of.source(); source != nil {
			files = wholeFiles{source}
		}
		k, err := config.ReadKubelet(files)
		if err == nil && (k.Command == nil || !h.Live()) {
			err = errors.New("no kubelet runs here")
		}
		if err == nil {
			said, err = of.Kernel.Complaint(ctx, k.Command[0], append(slices.Clone(k.Command[1:]), more(k)...)...)
		}
		if h.memo.keeps {
			said = config.PlainMessage(said, k.Command[:min(1, len(k.Command))]...)
		}
		return said, err
	})
}

// wholeFiles has all the text of files: only for what a program of the machine gets.
type wholeFiles struct{ Source }

func (f wholeFiles) ReadFile(name string) ([]byte, error) {
	text, err := f.Source.ReadFile(name)
	return text.Whole(), err
}
