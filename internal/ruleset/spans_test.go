package ruleset

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
)

func TestSpans(t *testing.T) {
	for _, c := range []struct {
		list []string
		want string // "first-last" of each span; "?" if the list is rejected
	}{
		{nil, ""},
		{[]string{"10.0.0.5", "10.0.0.0/30", "10.0.0.4"}, "10.0.0.0-10.0.0.5"},
		{[]string{"range 10.0.0.1, 10.0.0.9", "10.0.0.4/31", "10.0.1.0/24"}, "10.0.0.1-10.0.0.9 10.0.1.0-10.0.1.255"},
		{[]string{"2001:db8::/127", "2001:db8::2"}, "2001:db8::-2001:db8::2"},
		{[]string{"0.0.0.0/1", "128.0.0.0/1", "255.255.255.255"}, "0.0.0.0-255.255.255.255"},
		{[]string{"@set"}, "?"},
		{[]string{"10.0.0.1, x"}, "?"},
	} {
		all, ok := Spans(c.list)
		var got []string
		for _, s := range all {
			got = append(got, s.First.String()+"-"+s.Last.String())
		}
		if !ok {
			got = []string{"?"}
		}
		assert.Equal(t, strings.Join(got, " "), c.want, "%q: %v", c.list, got)
	}
}
