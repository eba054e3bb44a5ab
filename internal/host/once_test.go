package host_test

import (
	"context"
	"io"
	"testing"

	"nodegate/internal/host"
)

// counted counts the questions.
type counted struct {
	host.Links
	host.Rules
	lists, dumps int
}

func (c *counted) List(context.Context) ([]host.Link, error) {
	c.lists++
	return []host.Link{{Name: "eth0"}}, nil
}

func (c *counted) Dumps(_ context.Context, read func(string, io.Reader) error) error {
	c.dumps++
	return read("none", io.LimitReader(nil, 0))
}

func TestOnceAsksOnce(t *testing.T) {
	c := &counted{}
	h := host.Once(&host.Host{Root: "/", Links: c, Rules: c})
	for range 3 {
		links, err := h.Links.List(t.Context())
		if err != nil || len(links) != 1 {
			t.Fatalf("%v, %v", links, err)
		}
		read := 0
		err = h.Rules.Dumps(t.Context(), func(source string, _ io.Reader) error { read++; return nil })
		if err != nil || read != 1 {
			t.Fatalf("%d dumps, %v", read, err)
		}
	}
	if c.lists != 1 || c.dumps != 1 {
		t.Errorf("asked %d times for links, %d times for rules", c.lists, c.dumps)
	}
}
