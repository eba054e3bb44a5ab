package docs_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// guideBlock is one fenced block of a guide: the words after the fence, and the content.
type guideBlock struct {
	words []string
	text  string
}

// guideBlocks reads a guide.
func guideBlocks(t *testing.T, file string) []guideBlock {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	var all []guideBlock
	var open *guideBlock
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case open == nil && strings.HasPrefix(line, "```"):
			open = &guideBlock{words: strings.Fields(line[3:])}
		case open != nil && line == "```":
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	require.True(t, open == nil && lines.Err() == nil, "%s: unterminated block: %v", file, lines.Err())
	return all
}

// onNode runs the commands of a guide for a node in a network namespace, with a temporary /etc, /run, /var/lib and
// /usr/local/bin. There is no systemd; its commands do nothing.
const onNode = `exec unshare --mount --net sh -euc '
for dir in /etc /var/lib /usr/local/bin /run; do
	rm -rf scratch; mkdir scratch; [ $dir != /etc ] || cp -a /etc/. scratch
	mount -t tmpfs tmpfs $dir; cp -a scratch/. $dir
done
ip link set lo up
eval "$1"' sh "$1"`

// TestGuides runs the commands of the guides. It runs the blocks "sh workstation" in order, in a directory with the files that the
// other blocks name, and then the blocks "sh scratch" as one script. internal/e2e/vm runs the blocks "sh node".
func TestGuides(t *testing.T) {
	needNodegate(t)
	guides, err := filepath.Glob("guides/*.md")
	require.NoError(t, err)
	for _, file := range guides {
		name := strings.TrimSuffix(filepath.Base(file), ".md")
		if name == "bake-an-ami" { // images/release and images/packer run it
			continue
		}
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string, mode os.FileMode) {
				t.Helper()
				name = filepath.Join(dir, name)
				require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
				require.NoError(t, os.WriteFile(name, []byte(text), mode))
			}
			// kops is a stand-in that prints the cluster with the export in it; needNodegate has added nodegate to the path.
			write("tools/kops", "#!/bin/sh\n[ \"$1\" != get ] || { printf 'apiVersion: kops.k8s.io/v1alpha2\\nkind: Cluster\\n'; "+
				"cat nodegate.yaml 2>/dev/null || echo 'spec: {}'; }\n", 0o755)
			write("nodegate", "the file whose sum is asked for\n", 0o644)
			write("tools/systemctl", "#!/bin/sh\n", 0o755)
			require.NoError(t, os.Mkdir(filepath.Join(dir, "image"), 0o755))
			write("image/usr/lib/systemd/system/kubelet.service", "[Service]\nExecStart=/bin/true\n", 0o644)
			run := func(script, text string, want int) {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), "sh", "-euc", script, "sh", text)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "PATH="+dir+"/tools:"+os.Getenv("PATH"))
				out, err := cmd.CombinedOutput()
				if code := cmd.ProcessState.ExitCode(); code != want || strings.Contains(string(out), "already recorded") {
					t.Errorf("exit %d, want %d (%v):\n%s%s", code, want, err, text, out)
				}
			}
			ran, scratch := 0, ""
			for _, b := range guideBlocks(t, file) {
				switch {
				case len(b.words) == 0:
					t.Errorf("a block without a language")
				case b.words[0] == "sh":
					ran++
					switch where := append(b.words, "")[1]; where {
					case "node":
					case "scratch":
						scratch += b.text
					case "workstation":
						want := 0
						if len(b.words) > 2 && b.words[2] == "exit=1" {
							want = 1
						}
						run(`eval "$1"`, b.text, want)
					default:
						t.Errorf("nothing runs this block; write ```sh workstation, ```sh scratch or ```sh node:\n%s", b.text)
					}
				case len(b.words) > 1:
					write(b.words[1], b.text, 0o644)
				}
			}
			assert.True(t, ran != 0, "no commands found in the guide")
			if scratch != "" {
				hosttest.NeedRoot(t)
				hosttest.NeedProgram(t, "ip")
				run(onNode, scratch, 0)
			}
		})
	}
}
