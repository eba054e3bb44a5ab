package signature

import (
	"strings"
	"testing"
)

// FuzzSums: a name that is read stays in the folder of its list.
func FuzzSums(f *testing.F) {
	f.Add("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  nodegate\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, _ := parse("SHA256SUMS", text)
		for _, s := range list {
			if s.Name == "" || s.Name == ".." || strings.ContainsAny(s.Name, "/\x00") {
				t.Errorf("the name %q", s.Name)
			}
		}
	})
}
