package host_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// counted counts the queries.
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
	err := read("iptables-legacy-save", strings.NewReader(""))
	return errors.Join(err, read("iptables-nft-save", strings.NewReader("*nat\nCOMMIT\n")))
}

func TestOnceAsksOnce(t *testing.T) {
	c := &counted{}
	h := host.Once(&host.Host{Root: "/", Links: c, Rules: c})
	var first *ruleset.Set
	for range 3 {
		links, err := h.Links.List(t.Context())
		require.True(t, err == nil && len(links) == 1, "%v, %v", links, err)
		sets, err := h.Rulesets(t.Context())
		require.True(t, err == nil && len(sets) == 1 && (sets[0] == first || first == nil), "%v, %v", sets, err)
		first = sets[0]
	}
	assert.True(t, c.lists == 1 && c.dumps == 1, "listed the links %d times, read the rules %d times", c.lists, c.dumps)
}
