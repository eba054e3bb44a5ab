package units_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/policy"
	"nodegate/units"
)

// pack writes the files of a package below the root.
func pack(t *testing.T, root, binary string) {
	t.Helper()
	files := append(units.ForPackage(), units.File{Path: units.PackagedBinary, Mode: 0o755, Content: []byte(binary)})
	for _, f := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(root+f.Path), 0o755))
		require.NoError(t, os.WriteFile(root+f.Path, f.Content, f.Mode))
	}
}

// found returns the files of an installation with the binary below the root.
func found(t *testing.T, tree units.Tree, binary string) []units.File {
	t.Helper()
	prog, err := units.FindProgram(tree, []byte(binary))
	require.NoError(t, err)
	p, diags := policy.Load([]policy.File{{Name: "a.hcl", Text: []byte(policyOne)}}, policy.Options{})
	require.True(t, !diags.HasErrors(), "%v", diags)
	f, err := units.Files(p, nil, prog)
	require.NoError(t, err)
	return f
}

// TestPackagedProgram: an installation with the package's own binary does not write the package's
// files again, and all units call the package's binary.
func TestPackagedProgram(t *testing.T) {
	root := t.TempDir()
	tree := open(t, root)
	pack(t, root, "packaged")
	before := manifest(t, root)
	changes, err := units.Install(tree, found(t, tree, "packaged"), false)
	require.NoError(t, err)
	for _, c := range changes {
		assert.True(t, strings.HasPrefix(c.Path, "/etc/") || c.Path == units.JournalFile, "written: %s", c.Path)
	}
	calls(t, root, units.PackagedBinary)
	_, err = units.Uninstall(tree, false)
	require.NoError(t, err)
	for _, dir := range []string{"etc", "var"} {
		require.NoError(t, os.RemoveAll(filepath.Join(root, dir))) // the top directories, which Install created and keeps
	}
	after := manifest(t, root)
	assert.True(t, stripTimes(after) == stripTimes(before), "the package's files were changed:\n%s\nbefore:\n%s", after, before)
}

// TestAnotherBinary: a binary that differs from the package's is installed as a copy. A later
// installation with the package's binary removes the copy completely.
func TestAnotherBinary(t *testing.T) {
	root := t.TempDir()
	tree := open(t, root)
	pack(t, root, "packaged")
	_, err := units.Install(tree, found(t, tree, "newer"), false)
	require.NoError(t, err)
	calls(t, root, units.Binary)
	_, err = units.Install(tree, found(t, tree, "packaged"), false)
	require.NoError(t, err)
	calls(t, root, units.PackagedBinary)
	for _, gone := range []string{units.Binary, "/etc/systemd/system/" + units.ApplyUnit} {
		_, err = os.Lstat(root + gone)
		assert.True(t, err != nil, "%s still exists", gone)
	}
}

// TestPackageWithoutUnits: a binary without the units does not count as a package.
func TestPackageWithoutUnits(t *testing.T) {
	root := t.TempDir()
	tree := open(t, root)
	pack(t, root, "packaged")
	require.NoError(t, os.Remove(root+units.ForPackage()[0].Path))
	assert.Equal(t, found(t, tree, "packaged")[0].Path, units.Binary, "the first file")
}

// calls fails the test unless every command of the enabled units below the root is the binary, and the binary exists.
func calls(t *testing.T, root, binary string) {
	t.Helper()
	var seen []string
	for _, pattern := range []string{"/etc/systemd/system/*.d/*.conf", "/etc/systemd/system/*.wants/*"} {
		names, err := filepath.Glob(root + pattern)
		require.NoError(t, err)
		for _, name := range names {
			if to, err := os.Readlink(name); err == nil {
				name = root + to
			}
			text := require.ReadFile(t, name)
			for _, m := range regexp.MustCompile(`(?m)^ExecStart\w*=(?:\+.* exec )?(\S+)`).FindAllStringSubmatch(string(text), -1) {
				seen = append(seen, m[1])
			}
		}
	}
	slices.Sort(seen)
	got := slices.Compact(seen)
	assert.True(t, slices.Equal(got, []string{binary}), "the units call %v, want %s", got, binary)
	_, err := os.Stat(root + binary)
	assert.NoError(t, err)
}

func stripTimes(manifest string) string {
	return regexp.MustCompile(` \d{4}-\d\d-\d\d .*`).ReplaceAllString(manifest, "")
}
