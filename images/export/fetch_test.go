package export

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/units"
)

// stand is an environment for the fetch script, in which its absolute paths lead into a temporary directory.
type stand struct {
	t       *testing.T
	dir     string
	console string
	bin     string
	path    []string // directories with programs
}

func newStand(t *testing.T, d Delivery) stand {
	t.Helper()
	dir := t.TempDir()
	b := stand{t, dir, dir + "/console", dir + "/bin/nodegate", []string{dir + "/tools", "/usr/bin", "/bin"}}
	script := d.script("test", []string{"a.service"})
	for _, r := range [][2]string{
		{units.Binary, b.bin}, {"/dev/console", b.console}, {"/run/nodegate", dir + "/run-nodegate"}, {"/proc/cmdline", dir + "/cmdline"},
		{units.BreakGlassFile, dir + "/disabled"}, {"/var/lib/nodegate-fetch", dir + "/kept"},
	} {
		require.True(t, strings.Contains(script, r[0]) || r[0] == "/var/lib/nodegate-fetch", "the script does not name %s", r[0])
		script = strings.ReplaceAll(script, r[0], r[1])
	}
	b.file("fetch", script, 0o644)
	b.file("cmdline", "root=/dev/vda\n", 0o644)
	b.file("console", "", 0o644)
	b.file("tools/systemctl", "#!/bin/sh\n[ \"$1\" = --version ] || echo \"$*\" >>"+dir+"/systemctl\n", 0o755)
	return b
}

func (b stand) file(name, text string, mode os.FileMode) {
	b.t.Helper()
	name = filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		b.t.Fatal(err)
	}
}

func (b stand) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(b.dir, name))
	return string(text)
}

func (b stand) run(verb string) (output string, ok bool) {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), "/bin/sh", b.dir+"/fetch", verb)
	cmd.Env = []string{"PATH=" + strings.Join(b.path, ":")}
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

func serve(t *testing.T, content *string) Delivery {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if *content == "" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(*content))
	}))
	t.Cleanup(s.Close)
	return Delivery{URL: s.URL + "/nodegate", SHA256: hexSum("#!/bin/sh\necho \"gate ran: $*\"\n")}
}

func hexSum(text string) string {
	raw := sha256.Sum256([]byte(text))
	return hex.EncodeToString(raw[:])
}

const rightBinary = "#!/bin/sh\necho \"gate ran: $*\"\n"

func TestFetch(t *testing.T) {
	hosttest.NeedProgram(t, "curl")
	served := ""
	b := newStand(t, serve(t, &served))
	expect := func(verb string, ok bool, words string) {
		t.Helper()
		out, did := b.run(verb)
		require.True(t, did == ok && strings.Contains(out, words), "%s: ok %t, want %t and %q:\n%s", verb, did, ok, words, out)
	}
	expect("check", false, "is not here yet")
	expect("gate", false, "is not here yet")
	expect("fetch", false, "could not fetch http://")
	expect("fetch", false, "could not fetch http://")
	assert.Equal(t, strings.Count(b.read("console"), "could not fetch"), 1, "the console has the message")
	served = "something else"
	expect("fetch", false, "gives sha256 "+hexSum(served))
	left, err := filepath.Glob(b.dir + "/bin/nodegate.*")
	assert.True(t, err == nil && len(left) == 0, "left over: %v, %v", left, err)
	if !strings.Contains(b.read("console"), "it is not run") {
		t.Errorf("console: %s", b.read("console"))
	}
	expect("check", false, "")
	served = rightBinary
	expect("fetch", true, "fetched")
	expect("check", true, "")
	expect("gate", true, "gate ran: gate\n")
	assert.Equal(t, b.read("systemctl"), "--no-block start a.service\n", "systemctl was called with")
	// The right binary is in place: it is not fetched again.
	served = ""
	expect("fetch", true, "")
	// The binary was changed on the disk: it does not run.
	b.file("bin/nodegate", "#!/bin/sh\necho wrong one ran\n", 0o755)
	expect("gate", false, "not the one that was asked for")
}

// TestFetchBreakGlass: both kinds of break-glass open the gate even without a binary.
func TestFetchBreakGlass(t *testing.T) {
	served := ""
	b := newStand(t, serve(t, &served))
	b.file("disabled", "", 0o644)
	if out, ok := b.run("gate"); !ok || !strings.Contains(b.read("console"), "NOT proven") {
		t.Errorf("disabled: %t %s", ok, out)
	}
	require.NoError(t, os.Remove(b.dir+"/disabled"))
	for _, line := range []string{"root=/dev/vda xnodegate=off", `foo="a nodegate=off b"`, `foo='a nodegate=off b'`, "nodegate=off,"} {
		b.file("cmdline", line+"\n", 0o644)
		if out, ok := b.run("gate"); ok {
			t.Errorf("%s opened it: %s", line, out)
		}
	}
	b.file("cmdline", "root=/dev/vda nodegate=off\n", 0o644)
	if out, ok := b.run("gate"); !ok {
		t.Errorf("nodegate=off: %s", out)
	}
}

// TestFetchTools runs the script with curl, with wget, and with neither.
func TestFetchTools(t *testing.T) {
	served := rightBinary
	d := serve(t, &served)
	for _, tool := range []string{"curl", "wget", ""} {
		b := newStand(t, d)
		b.path = []string{b.dir + "/tools"}
		names := strings.FieldsSeq("sh cut sha256sum cat mktemp mkdir rm mv chmod " + tool)
		for n := range names {
			require.NoError(t, os.Symlink(lookPath(t, n), b.dir+"/tools/"+n))
		}
		out, ok := b.run("fetch")
		switch {
		case tool == "" && (ok || !strings.Contains(out, "neither curl nor wget is here")):
			t.Errorf("without a downloader: %t %s", ok, out)
		case tool != "" && (!ok || b.read("bin/nodegate") != rightBinary):
			t.Errorf("with %s: %t %s", tool, ok, out)
		}
	}
}

// TestFetchCannotWrite: a file is in the place of a directory.
func TestFetchCannotWrite(t *testing.T) {
	served := rightBinary
	b := newStand(t, serve(t, &served))
	b.file("bin", "", 0o644)
	if out, ok := b.run("fetch"); ok || !strings.Contains(out, "cannot write to") {
		t.Errorf("%t %s", ok, out)
	}
}

// TestFetchDirectory: mv would put the binary into the directory, where the script would never find it.
func TestFetchDirectory(t *testing.T) {
	served := rightBinary
	b := newStand(t, serve(t, &served))
	b.file("bin/nodegate/x", "", 0o644)
	if out, ok := b.run("fetch"); ok || !strings.Contains(out, "/bin/nodegate is a directory") {
		t.Errorf("%t %s", ok, out)
	}
	if names, _ := os.ReadDir(b.dir + "/bin/nodegate"); len(names) != 1 {
		t.Errorf("something was put into the directory: %v", names)
	}
}

// TestFetchBound: a download without an end, and one that announces more than the bound, are given up; and an address with
// brackets and braces is one address.
func TestFetchBound(t *testing.T) {
	const bound = 4 << 20
	for _, tool := range []string{"curl", "wget"} {
		hosttest.NeedProgram(t, tool)
		for path, wanted := range map[string]string{"/endless": "could not fetch", "/announced": "could not fetch", "/nodegate[x]{a,b}[1-3]": "fetched"} {
			var sent atomic.Int64
			var asked []string
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.URL.Path)
				switch r.URL.Path {
				case "/endless", "/announced":
					if r.URL.Path == "/announced" {
						w.Header().Set("Content-Length", strconv.Itoa(1<<30))
					}
					part := make([]byte, 64<<10)
					for n, err := w.Write(part); err == nil && sent.Load() < 64*bound; n, err = w.Write(part) {
						sent.Add(int64(n))
					}
				case path:
					_, _ = io.WriteString(w, rightBinary)
				}
			}))
			t.Cleanup(s.Close)
			b := newStand(t, Delivery{URL: s.URL + path, SHA256: hexSum(rightBinary)})
			script := b.read("fetch")
			if !strings.Contains(script, "most=268435456 ") {
				t.Fatal("the script has another bound than 256 MiB")
			}
			b.file("fetch", strings.Replace(script, "most=268435456 ", fmt.Sprintf("most=%d ", bound), 1), 0o644)
			b.path = []string{b.dir + "/tools"}
			for n := range strings.FieldsSeq("sh cut sha256sum cat mktemp mkdir rm mv chmod df tail " + tool) {
				require.NoError(t, os.Symlink(lookPath(t, n), b.dir+"/tools/"+n))
			}
			out, ok := b.run("fetch")
			if ok != (wanted == "fetched") || !strings.Contains(out, wanted) || strings.Contains(out, "is the disk full?") {
				t.Errorf("%s, %s: %t\n%s", tool, path, ok, out)
			}
			if slices.ContainsFunc(asked, func(p string) bool { return p != path }) {
				t.Errorf("%s, %s: the server was asked for %q", tool, path, asked)
			}
			if sent.Load() > 4*bound*int64(max(1, len(asked))) { // most of it waits in the sockets' buffers
				t.Errorf("%s, %s: %d requests took %d bytes", tool, path, len(asked), sent.Load())
			}
			if left, err := filepath.Glob(b.dir + "/bin/nodegate.*"); err != nil || len(left) > 0 {
				t.Errorf("%s, %s: left over: %v, %v", tool, path, left, err)
			}
		}
	}
}

// TestFetchDiskFull checks the exit code of each downloader on a full disk.
func TestFetchDiskFull(t *testing.T) {
	hosttest.NeedRoot(t)
	served := strings.Repeat("x", 1<<20)
	for _, tool := range []string{"curl", "wget"} {
		hosttest.NeedProgram(t, tool)
		b := newStand(t, serve(t, &served))
		b.path = []string{b.dir + "/tools"}
		for n := range strings.FieldsSeq("sh cut sha256sum cat mktemp mkdir rm mv chmod df tail mount " + tool) {
			require.NoError(t, os.Symlink(lookPath(t, n), b.dir+"/tools/"+n))
		}
		b.file("bin/x", "", 0o644)
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-euc",
			`mount -t tmpfs -o size=64k tmpfs "$1/bin"; exec sh "$1/fetch" fetch`, "sh", b.dir)
		cmd.Env = []string{"PATH=" + strings.Join(b.path, ":")}
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "is the disk full?") || strings.Contains(string(out), "could not fetch") {
			t.Errorf("%s: %v\n%s", tool, err, out)
		}
	}
}

// TestScriptSyntax checks the syntax of both scripts with the shells that may run them.
func TestScriptSyntax(t *testing.T) {
	for name, d := range deliveries() {
		if !d.fetched() {
			continue
		}
		file := t.TempDir() + "/fetch"
		require.NoError(t, os.WriteFile(file, []byte(d.script("x", []string{"a.service"})), 0o644))
		for _, shell := range []string{"sh", "bash"} {
			if out, err := exec.Command(shell, "-n", file).CombinedOutput(); err != nil {
				t.Errorf("%s, %s: %v\n%s", name, shell, err, out)
			}
		}
		if text, _ := os.ReadFile(file); strings.Contains(string(text), "@BIN") || strings.Contains(string(text), "@HOW") {
			t.Errorf("%s: something was not replaced", name)
		}
	}
}
