package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestExamples: the help of every verb has an example.
func TestExamples(t *testing.T) {
	for _, c := range newRoot().Commands() {
		assert.True(t, c.Example != "" || !shown(c) || c.Name() == "version", "the help of %s has no example", c.Name())
	}
}

// TestVerbs: a call that begins with a verb creates only the command of that verb.
func TestVerbs(t *testing.T) {
	for _, v := range verbs() {
		root := newRoot(v.name, "--help")
		all := root.Commands()
		assert.True(t, len(all) == 1 && all[0].Name() == v.name, "%s: %d commands, the first %s", v.name, len(all), all[0].Name())
	}
	for _, args := range [][]string{nil, {"--help"}, {"help", "check"}, {"chek"}, {"completion", "bash"}, {"__complete", "ch"}} {
		assert.Equal(t, len(newRoot(args...).Commands()), len(verbs()), "%q", args)
	}
}

// TestCallsInDocs: every call of nodegate in the documents, in a block or in a sentence, has a valid verb, valid flags and a valid
// number of arguments. TestGuides runs the blocks of the guides.
func TestCallsInDocs(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/guides/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	calls := 0
	block, sentence := regexp.MustCompile("(?ms)^```sh.*?^```"), regexp.MustCompile("`nodegate [^`]*`")
	call := regexp.MustCompile(`(?m)(?:^|[` + "`" + `|;&(] *|\bdo |sudo )nodegate( [^` + "`" + `|;&>#\n)]*)`)
	for _, file := range files {
		text := require.ReadFile(t, file)
		joined := strings.ReplaceAll(string(text), "\\\n", " ")
		found := block.FindAllString(joined, -1)
		for _, s := range sentence.FindAllString(block.ReplaceAllString(joined, ""), -1) {
			found = append(found, strings.ReplaceAll(s, "\n", " "))
		}
		for _, m := range call.FindAllStringSubmatch(strings.Join(found, "\n"), -1) {
			args, _, _ := strings.Cut(m[1], "  ") // cut off the remark
			words := strings.Fields(strings.NewReplacer("'", "", `"`, "", "<", " ", "]", "", "[", "").Replace(args))
			if len(words) == 0 || words[0] == strings.ToUpper(words[0]) { // a placeholder such as COMMAND
				continue
			}
			c, rest, err := newRoot().Find(words)
			if err == nil {
				err = c.ParseFlags(rest)
			}
			if err == nil && len(words) > 1 {
				err = c.ValidateArgs(c.Flags().Args())
			}
			assert.True(t, err == nil || strings.Contains(err.Error(), "help requested"), "%s: nodegate%s: %v", file, m[1], err)
			calls++
		}
	}
	assert.True(t, calls >= 100, "found %d calls", calls)
}
