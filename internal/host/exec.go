package host

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nodegate/internal/host/file"
	"nodegate/internal/host/program"
	"nodegate/internal/plain"
)

// Ran is how a program of the policy ended.
type Ran struct {
	Status int    // its exit status
	Line   string // the first line of its standard output, made harmless
}

// maxLine bounds the first line of a program's output, in bytes.
const maxLine = 300

// runChecked runs a program of the policy until ctx ends. It refuses a program that users other than root may write or replace. No error
// names the arguments, which may contain a secret.
func runChecked(ctx context.Context, command []string) (Ran, error) {
	name := command[0]
	open, err := file.WhoMayReplace("/", name)
	if err != nil {
		return Ran{}, fmt.Errorf("%s was not run: %w", name, err)
	}
	var wrong []string
	for _, o := range open {
		wrong = append(wrong, "run `"+o.Mend+" "+plain.Quote(o.Place)+"`")
	}
	if wrong != nil {
		return Ran{}, fmt.Errorf("%s was not run, because users other than root may write or replace it: %s", name, strings.Join(wrong, "; "))
	}
	status, output, err := program.Status(ctx, name, command[1:]...)
	line, _, _ := strings.Cut(strings.TrimLeft(output, "\r\n\t "), "\n")
	line = strings.ToValidUTF8(strings.TrimSpace(line), "?")
	if len(line) > maxLine {
		line = strings.ToValidUTF8(line[:maxLine], "") + "..."
	}
	return Ran{status, plain.Escape(line)}, err
}

// ErrNoPrograms is the error of a program of the policy that cannot run here: in a file tree, a recording or a replay.
var ErrNoPrograms = errors.New("a program of the policy runs only on the running machine")
