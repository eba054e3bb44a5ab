// Package docs_test tests the documents, and what they promise of the built program.
package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"nodegate/internal/require"
)

// TestMain makes an empty directory the first of the path. needNodegate builds the program there.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "nodegate-docs")
	if err != nil {
		panic(err)
	}
	if err := os.Setenv("PATH", dir+":"+os.Getenv("PATH")); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

var build = sync.OnceValue(func() error {
	dir := filepath.SplitList(os.Getenv("PATH"))[0]
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", dir+"/nodegate", "nodegate/cmd/nodegate").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

// needNodegate puts the program of this tree into the path. It lists the source directories, because `go test` takes the test's result
// from its cache unless a file or directory that the test opened has changed.
func needNodegate(t *testing.T) {
	t.Helper()
	require.NoError(t, build())
	for _, top := range []string{"cmd", "images", "checks", "units", "policy", "internal"} {
		require.NoError(t, filepath.WalkDir("../"+top, func(_ string, _ fs.DirEntry, err error) error { return err }))
	}
}
