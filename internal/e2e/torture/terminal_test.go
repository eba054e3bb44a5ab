//go:build torture

package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
)

// hostile is text that clears a terminal, rings its bell, and reverses what follows. As a name of a link it has 9 bytes.
const hostile = "e\x1b[2J\x07\u202e"

// hostilePolicy names the hostile link and parameter in the texts of its failures.
const hostilePolicy = `module "nodegate_no_such" { reason = "e\u001b[2J\u0007\u202e" }
sysctl "kernel.hostname" { value = "a" }
link "all" {
  mtu    = 1400
  reason = "e\u001b[2J\u0007\u202e"
  match { name = "e*" }
}
check "kubelet.ports" {}
check "kubelet.hostname" {}
gate {
  budget   = "300ms"
  interval = "100ms"
}
`

// prepareHostile gives hostile names to a link, the machine, its distribution, a program that holds kubelet's port, and a file.
const prepareHostile = `h="$(printf 'e\033[2J\a\342\200\256')"
ip link add name "$h" type bridge
printf %s "$h" >/proc/sys/kernel/hostname
printf 'ID=debian\nPRETTY_NAME="%s"\n' "$h" >"/etc/os.$$"
mv "/etc/os.$$" /etc/os-release # it is a link to a file outside the room
cp "$(command -v python3 || command -v sleep)" "/srv/$h"
listen='import socket,time;s=socket.socket();s.bind(("0.0.0.0",10250));s.listen();time.sleep(60)'
("/srv/$h" -c "$listen" "$h" || "/srv/$h" 60) >/dev/null 2>&1 </dev/null &
printf 'modul "x" {}\n' >"/srv/$h.hcl"
printf 'apiVersion: kops.k8s.io/v1alpha2\nkind: Cluster\nspec:\n  hooks:\n  - {"a\\e[2J": 1, name: "\\e[2J"}\n' >/srv/kops.yaml
printf '{"apiVersion":"nodegate/v1","kind":"Report","node":{"name":"e\\u001b[2J"},"stage":"boot","verdict":"fail",` +
	`"results":[{"name":"a\\u001b[2J",` +
	`"verdict":"fail","want":"\\u001b[2J","got":"\\u202e","remedy":"\\u0007"}]}\n' >/srv/report.json
printf '*nat\n:KUBE-SERVICES - [0:0]\n:\033[2J - [0:0]\n-A KUBE-SERVICES -m comment --comment "\033[2J" -j \033[2J\nCOMMIT\n' >/srv/rules
`

// TestTerminal runs every verb, in every format, on a terminal. Only nodegate's own colours may reach it.
func TestTerminal(t *testing.T) {
	t.Parallel()
	r := newRoom(t, hostilePolicy)
	runs := [][]string{
		{"gate"}, {"apply", "--timeout", "5s"}, {"plan"}, {"plan", "--format", "json"}, {"status"}, {"revert", "--dry-run"}, {"snapshot"},
		{"snapshot", "--show"}, {"policy", "show"}, {"policy", "show", "--effective"}, {"lint", "/srv"}, {"lint", "/srv/" + hostile + ".hcl"},
		{"lint", "/srv/no-such" + hostile}, {"fmt", "/srv/no-such" + hostile}, {"lint", "--kops", "/srv/kops.yaml"}, {"explain", hostile},
		{"explain"}, {"check", hostile}, {hostile}, {"install", "--dry-run"}, {"install", "--root", "/srv/" + hostile},
		{"audit", "--rules", "/srv/rules"},
		{"audit", "--rules", "/srv/rules", "--format", "json"}, {"check", "--snapshot", "/srv/report.json"},
		{"export", "sysctl.d"}, {"export", hostile},
		{"probe", "service", hostile + ":80"}, {"preview", "/srv/report.json"}, {"check", "--var", hostile + "=1"},
	}
	for _, format := range []string{"text", "json", "junit", "prometheus"} {
		runs = append(runs, []string{"check", "--stage", "all", "--timeout", "5s", "--format", format})
	}
	for _, format := range []string{"text", "json"} {
		runs = append(runs, []string{"report", "--format", format, "/srv/report.json"})
	}
	own := regexp.MustCompile("\x1b\\[[0-9;]*m")
	var s survey
	var shown, all []int
	for i := range runs {
		all = append(all, i)
	}
	forEachPoint(all, 4, func(i int) {
		s.runPoint(t, fmt.Sprintf("%q on a terminal", runs[i]), func() error {
			out, err := r.onTerminal(prepareHostile, runs[i]...)
			if err != nil {
				return err
			}
			if strings.Contains(out, `\u001b[2J`) || strings.Contains(out, `\x1b[2J`) || strings.Contains(out, `%1B%5B2J`) {
				s.mu.Lock()
				shown = append(shown, i)
				s.mu.Unlock()
			}
			switch {
			case strings.TrimSpace(out) == "":
				return errors.New("the output is empty")
			case !utf8.ValidString(out):
				return fmt.Errorf("bytes that are not UTF-8 reach the terminal: %s", lastLines(out))
			}
			for _, c := range own.ReplaceAllString(out, "") {
				if c != '\n' && c != '\r' && c != '\t' && (!unicode.IsGraphic(c)) {
					return fmt.Errorf("%U reaches the terminal: %s", c, lastLines(out))
				}
			}
			return nil
		})
	})
	s.printCounts(t, "hostile names on a terminal")
	t.Logf("%d of %d outputs have the hostile text, escaped", len(shown), len(runs))
	assert.True(t, len(shown) >= len(runs)/3, "the attacks do not reach the output")
}

// onTerminal returns what a run writes to a terminal, from which it also reads.
func (r room) onTerminal(setup string, args ...string) (string, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return "", err
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return "", err
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	cmd := r.command(ctx, setup, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	text := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(master) // ends with EIO when the last writer has closed the terminal
		text <- string(all)
	}()
	status, err := finish(ctx, cmd)
	_ = slave.Close()
	out := <-text
	if err == nil && (status < 0 || status > 128) {
		err = fmt.Errorf("exit status %d: %s", status, lastLines(out))
	}
	return out, err
}
