package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"nodegate/internal/host/config"
	"nodegate/internal/host/file"
)

// Conclude returns what compute makes of the answers of a host, as Plain returns it. A snapshot holds no text that people write: in place
// of the files that compute reads, and of its later questions, which may repeat their words, it holds the conclusion, which a replay
// returns.
func Conclude[T any](h *Host, name, known string, compute func(*Host) (T, error)) (T, error) {
	const kind = "conclusions"
	m := h.memo
	if m.absent != nil && m.answer(kind, name) != nil {
		return ask[T](context.Background(), m, kind, name, nil)
	}
	reading := h
	if m.keeps {
		m.told = new(atomic.Bool)
		reading = asking(h.asked, *h.asked, m)
	}
	v, err := compute(reading)
	if v, err = Plain(h, known, v, err); !m.keeps || !m.told.Load() {
		return v, err
	}
	return ask(context.Background(), h.memo, kind, name, func() (T, error) { return v, err })
}

// errText is recorded in place of a text that people write.
var errText = errors.New("a snapshot does not hold its text")

// ReadFile lets a check read a text that the snapshot does not hold.
func (a askedFiles) ReadFile(name string) ([]byte, error) {
	text, err := askFile(a, fileKind, name, func(name string) (string, error) {
		text, err := a.Files.ReadFile(name)
		switch {
		case !a.m.keeps:
			return string(text), err
		case err != nil:
			return "", err
		}
		kept, keeps := config.Kept(name, text)
		if !keeps {
			a.m.written.Add(name, string(text))
			return "", errText
		}
		return strings.ToValidUTF8(string(kept), "\uFFFD"), nil
	})
	if !errors.Is(err, errText) {
		return []byte(text), err
	}
	if a.m.told != nil {
		a.m.told.Store(true)
	}
	return a.Files.ReadFile(name)
}

func (a askedFiles) Exists(name string) (bool, error) {
	exists, err := askFile(a, "present", name, a.Files.Exists)
	if a.m.absent != nil && errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return exists, err
}

// ReadLink records only those open files of a process that are sockets.
func (a askedFiles) ReadLink(name string) (string, error) {
	return askFile(a, "symlinks", name, func(string) (string, error) {
		to, err := a.Files.ReadLink(name)
		if a.m.keeps && openFile().MatchString(name) && !strings.HasPrefix(to, "socket:[") {
			to = ""
		}
		return to, err
	})
}

func openFile() *regexp.Regexp { return regexp.MustCompile(`^/proc/[^/]+/fd/`) }

// Head records of a file's beginning only the header of an ELF program or the interpreter of a script.
func (a askedFiles) Head(name string) (file.Head, error) {
	return askFile(a, "heads", name, func(string) (file.Head, error) {
		found, err := a.Files.Head(name)
		if a.m.keeps {
			found.Start = executableHeader(found.Start)
		}
		return found, err
	})
}

// executableHeader returns the part of a file's beginning that names the program or processor that can execute it. Any
// other content is replaced by a space, which still differs from an empty file.
func executableHeader(start []byte) []byte {
	const elfIdentity = 20 // through e_machine
	switch {
	case bytes.HasPrefix(start, []byte("\x7fELF")):
		return start[:min(len(start), elfIdentity)]
	case bytes.HasPrefix(start, []byte("#!")):
		interpreter, _, _ := bytes.Cut(start[len("#!"):], []byte("\n"))
		if words := bytes.Fields(interpreter); len(words) > 0 {
			return append([]byte("#!"), words[0]...)
		}
	}
	return []byte(" ")[:min(len(start), 1)]
}

// askFile asks about a file. In a replay, a name that was not asked for does not exist if a recorded directory lacks it, or if a recorded
// file is in its path.
func askFile[T any](a askedFiles, kind, name string, read func(string) (T, error)) (T, error) {
	v, err := ask(context.Background(), a.m, kind, name, func() (T, error) { return read(name) })
	if a.m.absent == nil || !errors.Is(err, a.m.absent) || name != path.Clean(name) {
		return v, err
	}
	for at := name; at != "/" && at != "."; at = path.Dir(at) {
		in, unread := ask[[]string](context.Background(), a.m, dirKind, path.Dir(at), nil)
		_, isDir := ask[string](context.Background(), a.m, fileKind, path.Dir(at), nil)
		if unread == nil && !slices.Contains(in, path.Base(at)) || isDir == nil {
			return v, &fs.PathError{Op: "reading", Path: name, Err: fs.ErrNotExist}
		}
	}
	return v, err
}

func (a askedKernel) Complaint(ctx context.Context, program string, flags ...string) (string, error) {
	return ask(ctx, a.m, "error output of", commandKey(program, flags), func() (string, error) {
		said, err := a.Kernel.Complaint(ctx, program, flags...)
		if a.m.keeps {
			said = config.PlainMessage(said, program)
		}
		return said, err
	})
}

type unitState struct{ Active, File string }

func (a askedUnits) State(ctx context.Context, unit string) (active, file string, err error) {
	u, err := ask(ctx, a.m, "state of", unit, func() (u unitState, err error) {
		u.Active, u.File, err = a.Units.State(ctx, unit)
		return u, err
	})
	return u.Active, u.File, err
}

func (a askedUnits) Crashes(ctx context.Context, unit string) (Crash, error) {
	return ask(ctx, a.m, "exits of", unit, func() (Crash, error) {
		c, err := a.Units.Crashes(ctx, unit)
		if a.m.keeps { // a recording leaves its machine
			c.Line = config.PlainMessage(c.Line)
		}
		return c, err
	})
}

// Dumps remembers the texts only for a snapshot.
func (a askedRules) Dumps(ctx context.Context, read func(string, io.Reader) error) error {
	if a.m.absent == nil && !a.m.keeps {
		return a.Rules.Dumps(ctx, read)
	}
	texts := map[string]string{}
	sources, err := ask(ctx, a.m, "packet filter rules", "", func() (sources []string, err error) {
		return sources, a.Rules.Dumps(ctx, func(source string, dump io.Reader) error {
			text, err := io.ReadAll(io.LimitReader(dump, maxFile+1))
			if err == nil && len(text) > maxFile {
				err = fmt.Errorf("%s prints more than %d MiB of rules, the limit of a snapshot", source, maxFile>>20)
			}
			sources, texts[source] = append(sources, source), config.PlainRules(string(text))
			return err
		})
	})
	if err != nil {
		return err
	}
	for _, source := range sources {
		text, err := ask(ctx, a.m, ruleKind, source, func() (string, error) { return texts[source], nil })
		if err == nil {
			err = read(source, strings.NewReader(text))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Packets records the last answer, whatever the question was: in a replay it is asked otherwise.
func (a askedRules) Packets(ctx context.Context, question []byte) ([]byte, error) {
	of := string(question)
	if a.m.keeps || a.m.absent != nil {
		of = ""
	}
	said, err := ask(ctx, a.m, "packets", of, func() (string, error) {
		answer, err := a.Rules.Packets(ctx, question)
		return string(answer), err
	})
	return []byte(said), err
}

// Takes records the answer about each text.
func (a askedRules) Takes(ctx context.Context, program, whole string, texts []string) ([]string, error) {
	if a.m.absent == nil && !a.m.keeps {
		return a.Rules.Takes(ctx, program, whole, texts)
	}
	var all []string
	var failed error
	if a.m.absent == nil {
		all, failed = a.Rules.Takes(ctx, program, whole, texts)
	}
	rejected := make([]string, len(texts))
	for i, text := range texts {
		why, err := ask(ctx, a.m, "rule of", commandKey(program, []string{text}), func() (string, error) {
			if failed != nil {
				return "", failed
			}
			return all[i], nil
		})
		if rejected[i] = why; err != nil {
			return nil, err
		}
	}
	return rejected, nil
}

// commandKey returns the name of a rule or a command line.
func commandKey(program string, rule []string) string {
	return strings.Join(append([]string{program}, rule...), " ")
}

// Kubelet returns kubelet's configuration according to the machine's files. Callers must not change the maps.
func (h *Host) Kubelet() (config.Kubelet, error) {
	return derived(context.Background(), h.memo, "kubelet", func() (config.Kubelet, error) { return config.ReadKubelet(h.Files) })
}

// derived is ask for what is computed from other answers: also a replay computes it, and no snapshot holds it.
func derived[T any](ctx context.Context, m memo, name string, compute func() (T, error)) (T, error) {
	if m.keeps { // a stored value would hide from Conclude which texts it was read from
		return compute()
	}
	return ask(ctx, memo{Snapshot: m.derived}, "", name, compute)
}
