package signature_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/signature"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// signed makes a folder with a list and its signature.
func signed(t *testing.T, list string) (dir string, key minisign.PublicKey) {
	t.Helper()
	key, private, err := minisign.GenerateKey(rand.Reader)
	must(t, err)
	dir = t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, signature.ListName), []byte(list), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, signature.ListName+signature.Suffix), minisign.Sign(private, []byte(list)), 0o644))
	return dir, key
}

// TestList: a list that names anything but files in its folder is rejected, signed
// or not, with every wrong line.
func TestList(t *testing.T) {
	ok := sumOf("x")
	for _, test := range []struct{ list, want string }{
		{"", "empty"},
		{ok + "  ../x\n", `SHA256SUMS:1: "../x" is not the name`},
		{ok + "  /etc/passwd\n", `"/etc/passwd" is not the name`},
		{ok + "  ..\n", `".." is not the name`},
		{ok + "  a/b\n", `"a/b" is not the name`},
		{ok + "  a\\b\n", `is not the name`},
		{ok + "  a\r\n", `is not the name`},
		{"\\" + ok + "  a\\nb\n", `SHA256SUMS:1: want "SHA256  NAME"`},
		{ok + " x\n", `want "SHA256  NAME"`},
		{ok + "\n", `want "SHA256  NAME"`},
		{ok[:40] + "  x\n", `want "SHA256  NAME"`},
		{strings.ToUpper(ok) + "  x\n", `want "SHA256  NAME"`},
		{ok + "  x\n\n" + ok + " *x\n", "SHA256SUMS:2: want \"SHA256  NAME\" as sha256sum writes it\n" +
			"DIR/SHA256SUMS:3: x is on line 1 already"},
	} {
		dir, key := signed(t, test.list)
		_, err := signature.Read(dir, key)
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), dir, "DIR"), test.want) {
			t.Errorf("list %q: %v, want %s", test.list, err, test.want)
		}
		if errors.Is(err, signature.ErrDiffers) {
			t.Errorf("list %q is as it was signed, and no list: %v", test.list, err)
		}
	}
}

// TestNothingIsReadOfAnUnprovenList: not even a wrong line is reported.
func TestNothingIsReadOfAnUnprovenList(t *testing.T) {
	dir, key := signed(t, sumOf("x")+"  x\n")
	must(t, os.WriteFile(filepath.Join(dir, signature.ListName), []byte("evil\n"), 0o644))
	_, err := signature.Read(dir, key)
	if !errors.Is(err, signature.ErrDiffers) || strings.Contains(err.Error(), "sha256sum") {
		t.Errorf("a changed list: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, signature.ListName), make([]byte, 2<<20), 0o644))
	if _, err := signature.Read(dir, key); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a list of 2 MiB: %v", err)
	}
}

// TestCheck: links out of the folder, folders and pipes are not files of it.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "good"), []byte("x"), 0o644))
	must(t, os.Symlink("/etc/hostname", filepath.Join(dir, "out")))
	must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	for name, want := range map[string]string{"good": "", "out": "escapes", "folder": "not a file", "gone": "missing"} {
		err := signature.Check(dir, signature.Sum{Name: name, SHA256: sumOf("x")})
		if (want == "" && err != nil) || (want != "" && (err == nil || !strings.Contains(err.Error(), want))) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// TestMinisign: minisign(1) verifies our signatures, and we verify minisign's.
func TestMinisign(t *testing.T) {
	hosttest.NeedProgram(t, "minisign")
	dir := t.TempDir()
	list := filepath.Join(dir, signature.ListName)
	public, private := filepath.Join(dir, "key.pub"), filepath.Join(dir, "key")
	must(t, os.WriteFile(list, []byte(sumOf("x")+"  x\n"), 0o644))
	minisignProgram(t, "-G", "-W", "-p", public, "-s", private)
	minisignProgram(t, "-S", "-s", private, "-m", list)
	key, err := minisign.PublicKeyFromFile(public)
	must(t, err)
	if _, err := signature.Read(dir, key); err != nil {
		t.Errorf("what minisign signed: %v", err)
	}
	text, err := os.ReadFile(private)
	must(t, err)
	var theirs minisign.PrivateKey
	must(t, theirs.UnmarshalText(text))
	must(t, os.WriteFile(list, []byte(sumOf("y")+"  x\n"), 0o644))
	if _, err := signature.Read(dir, key); !errors.Is(err, signature.ErrDiffers) {
		t.Errorf("a changed list: %v", err)
	}
	text, err = os.ReadFile(list)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, signature.ListName+signature.Suffix), minisign.Sign(theirs, text), 0o644))
	minisignProgram(t, "-V", "-p", public, "-m", list)
}

func minisignProgram(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "minisign", args...).CombinedOutput(); err != nil {
		t.Fatalf("minisign %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
