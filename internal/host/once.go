package host

import (
	"context"
	"io"
	"slices"
	"strings"
)

// Once returns a host that asks for the rules of the packet filter and for the list
// of links at most once, and returns the same from memory later. It is for one run
// of the checks: several of them need the same.
func Once(h *Host) *Host {
	once := *h
	once.opened = nil // h closes them
	once.Rules = &rulesOnce{asked: h.Rules}
	once.Links = &linksOnce{Links: h.Links}
	return &once
}

type linksOnce struct {
	Links
	done  bool
	links []Link
	err   error
}

func (l *linksOnce) List(ctx context.Context) ([]Link, error) {
	if !l.done {
		l.done = true
		l.links, l.err = l.Links.List(ctx)
	}
	return slices.Clone(l.links), l.err
}

type rulesOnce struct {
	asked Rules
	done  bool
	dumps []ruleDump
	err   error
}

func (r *rulesOnce) Accepts(ctx context.Context, program string, rule ...string) (rejected string, err error) {
	return r.asked.Accepts(ctx, program, rule...)
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
