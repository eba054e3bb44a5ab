package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// guideBlock is one fenced block of a guide: the words after the fence, and the text.
type guideBlock struct {
	words []string
	text  string
}

// guideBlocks reads a guide.
func guideBlocks(t *testing.T, file string) []guideBlock {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
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
	if open != nil || lines.Err() != nil {
		t.Fatalf("%s: a block does not end: %v", file, lines.Err())
	}
	return all
}

// TestGuides runs the commands of the guides for a workstation: the blocks "sh workstation", in the order of the guide, in a folder
// with the files that its other blocks name. The blocks "sh node" are run by images/vm, in the scenario guides.
func TestGuides(t *testing.T) {
	for _, name := range []string{"kops", "fix-bridge", "kubeadm", "k3s-rke2"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string, mode os.FileMode) {
				t.Helper()
				name = filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(text), mode); err != nil {
					t.Fatal(err)
				}
			}
			// kops is a stand-in that prints the cluster with the export in it; TestMain has put nodegate onto the path.
			write("tools/kops", "#!/bin/sh\n[ \"$1\" != get ] || { printf 'apiVersion: kops.k8s.io/v1alpha2\\nkind: Cluster\\n'; "+
				"cat nodegate.yaml 2>/dev/null || echo 'spec: {}'; }\n", 0o755)
			write("nodegate", "the file whose sum is asked for\n", 0o644)
			ran := 0
			for _, b := range guideBlocks(t, "../../docs/guides/"+name+".md") {
				switch {
				case len(b.words) == 0:
					t.Errorf("a block without a language")
				case b.words[0] == "sh":
					if len(b.words) < 2 || b.words[1] != "workstation" && b.words[1] != "node" {
						t.Errorf("nothing runs this block; write ```sh workstation or ```sh node:\n%s", b.text)
						continue
					}
					ran++
					if b.words[1] == "node" {
						continue
					}
					want := 0
					if len(b.words) > 2 && b.words[2] == "exit=1" {
						want = 1
					}
					cmd := exec.CommandContext(t.Context(), "sh", "-euc", b.text)
					cmd.Dir = dir
					cmd.Env = append(os.Environ(), "PATH="+dir+"/tools:"+os.Getenv("PATH"))
					out, err := cmd.CombinedOutput()
					if code := cmd.ProcessState.ExitCode(); code != want {
						t.Errorf("exit %d, want %d (%v):\n%s%s", code, want, err, b.text, out)
					}
				case len(b.words) > 1:
					write(b.words[1], b.text, 0o644)
				}
			}
			if ran == 0 {
				t.Error("no commands found in the guide")
			}
		})
	}
}
