package host

import (
	"context"
	"io"
	"strings"
)

// Once is a host that asks the packet filter at most once, and answers every
// later question about rules from memory. It is for one run of the checks:
// several of them look at the same rules, and each dump starts four programs.
func Once(h *Host) *Host {
	once := *h
	once.Rules = &rulesOnce{asked: h.Rules}
	return &once
}

type rulesOnce struct {
	asked Rules
	done  bool
	dumps []ruleDump
	err   error
}

func (r *rulesOnce) Dumps(ctx context.Context, read func(string, io.Reader) error) error {
	if !r.done {
		r.done = true
		r.err = r.asked.Dumps(ctx, func(source string, dump io.Reader) error {
			text, err := io.ReadAll(dump)
			r.dumps = append(r.dumps, ruleDump{source, string(text)})
			return err
		})
	}
	if r.err != nil {
		return r.err
	}
	for _, d := range r.dumps {
		if err := read(d.Source, strings.NewReader(d.Text)); err != nil {
			return err
		}
	}
	return nil
}
