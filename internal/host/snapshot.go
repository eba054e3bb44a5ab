package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/boot"
	"nodegate/internal/host/config"
	"nodegate/internal/host/file"
	"nodegate/internal/ruleset"
)

// Snapshot records a host's answers: enough to run the same checks again on any machine. If a query
// was not made when the snapshot was taken, a replay returns ErrNotRecorded.
type Snapshot struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Taken      time.Time `json:"taken"`
	Root       string    `json:"root"`
	Stage      string    `json:"stage,omitempty"` // the stage that fitted the machine

	Kernel  answer[string]                  `json:"kernelRelease"`
	Version map[string]answer[string]       `json:"versions,omitempty"`
	Said    map[string]answer[string]       `json:"complaints,omitempty"`
	Files   map[string]answer[string]       `json:"files,omitempty"`
	Dirs    map[string]answer[[]string]     `json:"dirs,omitempty"`
	SymLink map[string]answer[string]       `json:"symlinks,omitempty"`
	Present map[string]answer[bool]         `json:"present,omitempty"`
	Filled  map[string]answer[bool]         `json:"filled,omitempty"` // file -> whether it has content
	Heads   map[string]answer[file.Head]    `json:"heads,omitempty"`
	Spaces  map[string]answer[Space]        `json:"spaces,omitempty"`
	List    answer[[]Link]                  `json:"links"`
	PodMTUs answer[map[string]int]          `json:"podMTUs"`
	Default answer[[]string]                `json:"defaultRoutes"`
	IPs     answer[[]netip.Addr]            `json:"addresses,omitzero"`
	Routing answer[[]RoutingRule]           `json:"routingRules"`
	Routes  answer[[]Route]                 `json:"routes,omitzero"`
	Hops    answer[[]Hop]                   `json:"hops,omitzero"`
	Clock   answer[bool]                    `json:"clockSynchronised,omitzero"`
	Drivers map[string]answer[string]       `json:"drivers,omitempty"`
	Offload map[string]answer[featureOf]    `json:"features,omitempty"`
	Tuning  map[string]answer[tuningOf]     `json:"tuning,omitempty"` // "ring eth0"
	Stats   map[string]answer[statsOf]      `json:"stats,omitempty"`
	Runtime map[string]answer[string]       `json:"runtimes,omitempty"`
	Crashes map[string]answer[Crash]        `json:"crashes,omitempty"`
	Loaded  map[string]answer[Loaded]       `json:"loaded,omitempty"`
	Boot    map[string]answer[boot.Boot]    `json:"boot,omitempty"` // by the unit that was asked for
	Cgroups map[string]answer[CgroupDriver] `json:"cgroupDrivers,omitempty"`
	Setups  map[string]answer[RuntimeSetup] `json:"runtimeSetups,omitempty"`
	Units   map[string]answer[unitState]    `json:"units,omitempty"`
	Rules   []ruleDump                      `json:"rules,omitempty"`
	Foreign answer[[]*ruleset.NFTTable]     `json:"foreignTables,omitzero"`
	Others  answer[Others]                  `json:"otherRules,omitzero"`
	RuleErr answer[bool]                    `json:"rulesRead"`
	Tried   map[string]answer[string]       `json:"rulesTried,omitempty"` // rule or command -> reason for its rejection, "" if it was accepted

	hidden *config.Filter // knows the words that the recorded files leave out
	tree   bool           // of a file tree, which answers nothing that only a running machine knows

	mu sync.Mutex // for recording: some checks run concurrently
}

type (
	featureOf = map[string]Feature
	statsOf   = map[string]uint64
	tuningOf  = map[string]Amount
)

type unitState struct {
	Active string `json:"active"`
	File   string `json:"file,omitempty"`
}

type ruleDump struct {
	Source string `json:"source"`
	Text   string `json:"text"`
}

// ErrNotRecorded is the error of a query whose answer is not in the snapshot.
var ErrNotRecorded = errors.New("not in this snapshot: its policy did not read it, and it is not --whole")

// errReplay is the error of every attempt to change a replayed host, or the kernel of a file tree.
var errReplay = errors.New("a snapshot, or a file tree without a kernel, cannot be changed")

// errTree is the error of every query that only a running machine can answer.
var errTree = errors.New("a file tree has no running kernel; use --stage image, or omit --root")

// unknown returns the error of a query without an answer.
func (s *Snapshot) unknown() error {
	if s.tree {
		return errTree
	}
	return ErrNotRecorded
}

// ReadSnapshot accepts only snapshotVersion and snapshotKind.
const snapshotVersion, snapshotKind = "nodegate/v1", "Snapshot"

// ReadSnapshot reads a Snapshot in JSON, at most 64 MiB.
func ReadSnapshot(r io.Reader) (*Snapshot, error) {
	var s Snapshot
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
	return &s, nil
}

// answer is the result of a query: a value or an error. The zero answer belongs to a query that was
// not made.
type answer[T any] struct {
	Value T      `json:"value,omitzero"`
	Error string `json:"error,omitempty"`
	Asked bool   `json:"asked"`
}

func recordAnswer[T any](v T, err error) answer[T] {
	if err == nil {
		return answer[T]{Value: v, Asked: true}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return answer[T]{Error: timeoutError, Asked: true}
	}
	if no, is := errors.AsType[syscall.Errno](err); is {
		return answer[T]{Error: unix.ErrnoName(no), Asked: true}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return answer[T]{Error: "ENOENT", Asked: true}
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return answer[T]{Error: "EOPNOTSUPP", Asked: true}
	}
	return answer[T]{Error: err.Error(), Asked: true}
}

// timeoutError is recorded for a program that did not end in time.
const timeoutError = "timeout"

// answered returns the value or the error of an answer about what.
func answered[T any](s *Snapshot, a answer[T], what string) (T, error) {
	var zero T
	switch {
	case !a.Asked:
		return zero, fmt.Errorf("%s: %w", what, s.unknown())
	case a.Error == "":
		return a.Value, nil
	case a.Error == "EOPNOTSUPP": // unix.ErrnoName returns the number's other name, ENOTSUP
		return zero, &fs.PathError{Op: "reading", Path: what, Err: errors.ErrUnsupported}
	case a.Error == timeoutError:
		return zero, fmt.Errorf("%s did not end: %w", what, context.DeadlineExceeded)
	}
	// Checks distinguish these errors; any other error keeps its text.
	for _, no := range []syscall.Errno{
		syscall.ENOENT, syscall.EACCES, syscall.EPERM, syscall.EINVAL, syscall.EIO, syscall.ENOTDIR, syscall.EOPNOTSUPP, syscall.ENODEV,
		syscall.ECONNREFUSED,
	} {
		if a.Error == unix.ErrnoName(no) {
			return zero, &fs.PathError{Op: "reading", Path: what, Err: no}
		}
	}
	return zero, fmt.Errorf("reading %s: %s", what, a.Error)
}
