package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/config"
)

// Snapshot is the memo of a host: the answers that it gave, by the kind of the question and by its name. A recording of them is enough
// to run the same checks again on any machine. If a question was not asked when it was taken, a replay returns ErrNotRecorded.
type Snapshot struct {
	APIVersion string                        `json:"apiVersion"`
	Kind       string                        `json:"kind"`
	Form       int                           `json:"form"`
	Taken      time.Time                     `json:"taken"`
	Root       string                        `json:"root"`
	Stage      string                        `json:"stage,omitempty"` // the stage that fitted the machine
	Answers    map[string]map[string]*answer `json:"answers"`

	mu sync.Mutex // some checks run concurrently
}

// The kinds of questions that are not asked in host.go alone.
const (
	fileKind = "files"
	dirKind  = "directories"
	ruleKind = "rules"
)

// answer is a value or an error.
type answer struct {
	asking sync.Mutex // held by the check that asks
	given  bool
	value  any
	err    error

	read    json.RawMessage // of a snapshot
	decoded any             // the question's type of it
	failed  error
}

// memo is a host's access to the answers that it has given.
type memo struct {
	*Snapshot
	derived *Snapshot        // what was computed from answers
	keeps   bool             // it is a recording
	written *config.Withheld // of a recording: the texts that people wrote
	told    *atomic.Bool     // of a recording in Conclude: it has read a text that the snapshot does not hold, and records no more answers
	again   bool             // a new answer replaces the one that is there
	absent  error            // of a replay, and of a file tree's kernel: why a question has no answer
}

// ErrNotRecorded is the error of a question whose answer is not in the snapshot.
var ErrNotRecorded = errors.New("not in this snapshot: its policy did not read it, and it is not --whole")

// errTree is the error of every question that only a running machine can answer.
var errTree = errors.New("a file tree has no running kernel; use --stage image, or omit --root")

// ask returns the answer to a question, and calls read the first time. Checks that ask at the same time get the same answer. An answer
// that the end of ctx cut short is not given again.
func ask[T any](ctx context.Context, m memo, kind, name string, read func() (T, error)) (T, error) {
	asksOf := name != "" && kind != ruleKind // only the name of a question may have words of a text
	if m.Snapshot == nil || asksOf && m.told != nil && m.told.Load() {
		return read()
	}
	a := m.answer(kind, name)
	if m.absent != nil {
		return replayed[T](m, a, kind, name)
	}
	a.asking.Lock()
	defer a.asking.Unlock()
	m.mu.Lock()
	value, err, given := a.value, a.err, a.given && !m.again
	m.mu.Unlock()
	if v, is := value.(T); is && given {
		return v, err
	}
	v, err := read()
	m.mu.Lock()
	defer m.mu.Unlock()
	a.value, a.err, a.given = v, err, ctx.Err() == nil
	return v, err
}

// askOnly is ask for the only question of its kind, askAbout for one about a thing.
func askOnly[T any](ctx context.Context, m memo, kind string, read func(context.Context) (T, error)) (T, error) {
	return ask(ctx, m, kind, "", func() (T, error) { return read(ctx) })
}

func askAbout[T any](ctx context.Context, m memo, kind, of string, read func(context.Context, string) (T, error)) (T, error) {
	return ask(ctx, m, kind, of, func() (T, error) { return read(ctx, of) })
}

// answer returns the place of an answer. In a replay it is nil for a question that was not asked.
func (m memo) answer(kind, name string) *answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.Answers[kind][name]
	if a == nil && m.absent == nil {
		if m.Answers == nil {
			m.Answers = map[string]map[string]*answer{}
		}
		if m.Answers[kind] == nil {
			m.Answers[kind] = map[string]*answer{}
		}
		a = &answer{}
		m.Answers[kind][name] = a
	}
	return a
}

// replayed returns a recorded answer.
func replayed[T any](m memo, a *answer, kind, name string) (v T, err error) {
	about := name
	if !strings.HasPrefix(name, "/") {
		about = strings.TrimSpace(kind + " " + name)
	}
	if a == nil {
		return v, fmt.Errorf("%s: %w", about, m.absent)
	}
	a.asking.Lock()
	defer a.asking.Unlock()
	if a.decoded == nil && a.failed == nil {
		var recorded struct {
			Value T
			Error string
		}
		text := a.read
		if text == nil {
			text, a.failed = a.MarshalJSON()
		}
		if a.failed == nil {
			a.failed = json.Unmarshal(text, &recorded)
		}
		if a.decoded = recorded.Value; a.failed == nil && recorded.Error != "" {
			a.failed = recordedError(about, recorded.Error)
		}
	}
	v, _ = a.decoded.(T)
	return v, a.failed
}

// MarshalJSON encodes an answer. Checks distinguish the errors that have a name; any other error keeps its text.
func (a *answer) MarshalJSON() ([]byte, error) {
	if a.read != nil {
		return a.read, nil
	}
	said := struct {
		Value any    `json:"value,omitempty"`
		Error string `json:"error,omitempty"`
	}{Value: a.value}
	if a.err != nil {
		no, is := errors.AsType[syscall.Errno](a.err)
		if v := reflect.ValueOf(a.value); !v.IsValid() || v.IsZero() { // a conclusion is more than its error
			said.Value = nil
		}
		switch {
		case errors.Is(a.err, context.DeadlineExceeded):
			said.Error = timeoutError
		case is:
			said.Error = unix.ErrnoName(no)
		case errors.Is(a.err, fs.ErrNotExist):
			said.Error = "ENOENT"
		case errors.Is(a.err, errors.ErrUnsupported):
			said.Error = "EOPNOTSUPP"
		default:
			said.Error = a.err.Error()
		}
	}
	return json.Marshal(said)
}

// UnmarshalJSON keeps the text: only the question knows its type.
func (a *answer) UnmarshalJSON(text []byte) error {
	a.read = bytes.Clone(text)
	return nil
}

// timeoutError is recorded for a program that did not end in time.
const timeoutError = "timeout"

func recordedError(about, text string) error {
	switch text {
	case "EOPNOTSUPP": // unix.ErrnoName returns the number's other name, ENOTSUP
		return &fs.PathError{Op: "reading", Path: about, Err: errors.ErrUnsupported}
	case timeoutError:
		return fmt.Errorf("%s did not end: %w", about, context.DeadlineExceeded)
	}
	for _, no := range []syscall.Errno{
		syscall.ENOENT, syscall.EACCES, syscall.EPERM, syscall.EINVAL, syscall.EIO, syscall.ENOTDIR, syscall.EOPNOTSUPP, syscall.ENODEV,
		syscall.ECONNREFUSED,
	} {
		if text == unix.ErrnoName(no) {
			return &fs.PathError{Op: "reading", Path: about, Err: no}
		}
	}
	return fmt.Errorf("reading %s: %s", about, text)
}

// ReadSnapshot accepts only this version, kind and form.
const snapshotVersion, snapshotKind, snapshotForm = "nodegate/v1", "Snapshot", 2

// ReadSnapshot reads a Snapshot in JSON, at most 64 MiB.
func ReadSnapshot(r io.Reader) (*Snapshot, error) {
	s := Snapshot{Form: 1} // which had no number
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("it is larger than %d MiB", maxFile>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("reading snapshot: %w", err)
	}
	if bytes.HasPrefix(b, []byte("\x1f\x8b")) {
		return nil, errors.New("reading snapshot: it is compressed; run `gunzip -k` on it first")
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("reading snapshot: %w; `nodegate snapshot -o FILE` writes one", err)
	}
	if s.APIVersion != snapshotVersion || s.Kind != snapshotKind {
		return nil, fmt.Errorf("reading snapshot: this is %q %q, not a %s %s", s.APIVersion, s.Kind, snapshotVersion, snapshotKind)
	}
	if s.Form != snapshotForm {
		return nil, fmt.Errorf("reading snapshot: it has form %d, and this nodegate reads form %d; record the node again with "+
			"`nodegate snapshot -o FILE`", s.Form, snapshotForm)
	}
	return &s, nil
}
