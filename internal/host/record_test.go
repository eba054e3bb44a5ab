package host_test

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestRecordProcesses: a snapshot holds the names of programs and the flags that checks read.
func TestRecordProcesses(t *testing.T) {
	const stat = " S 1 1 1 0 -1 4194560 1 0 0 0 10 20 0 0 20 0 1 0 300 0 0\n"
	files := map[string]string{
		"/proc/7/stat": "7 (kube-proxy)" + stat, "/proc/7/fd/3": "-> socket:[9]", "/proc/7/fd/4": "-> /srv/S3cret",
		"/proc/7/cmdline": "/usr/bin/kube-proxy\x00--proxy-mode=ipvs\x00--config\x00/etc/p.conf\x00--hostname-override=S3cret\x00--x\x00S3cret\x00",
		"/proc/8/stat":    "8 (mysql)" + stat,
		"/proc/8/cmdline": "mysql\x00-pS3cret\x00--proxy-mode=S3cret\x00S3cret\x00",
		"/proc/9/stat":    "9 (k3s)" + stat, "/proc/9/cmdline": "/usr/local/bin/k3s agent\x00--token\x00S3cret\x00--kube-proxy-arg=proxy-mode=ipvs\x00",
		"/proc/10/stat": "10 (postgres)" + stat, "/proc/10/cmdline": "postgres: user S3cret\x00",
	}
	recorder, s := host.Record((&hosttest.Machine{Files: files}).Host())
	list, err := recorder.Processes()
	require.NoError(t, err)
	for _, fd := range []string{"3", "4"} {
		_, err = recorder.Files.ReadLink("/proc/7/fd/" + fd)
		assert.NoError(t, err)
	}
	assert.True(t, len(list) == 4 && slices.Contains(list[0].Args, "S3cret"), "a check sees %v", list)
	text, err := json.Marshal(s)
	assert.True(t, err == nil && !strings.Contains(string(text), "S3cret") && strings.Contains(string(text), "socket:[9]"),
		"%v: %s", err, text)
}

// TestRecordFilled: a snapshot holds whether a file has content, and not the content.
func TestRecordFilled(t *testing.T) {
	recorder, s := host.Record((&hosttest.Machine{Files: map[string]string{
		"/root/.netrc": "password S3cret", "/etc/machine-id": "uninitialized\n", "/root/.bash_history": "-> /dev/null", "/var/log/journal/a/b": "",
	}}).Host())
	for name, want := range map[string]bool{
		"/root/.netrc": true, "/etc/machine-id": false, "/root/.bash_history": false, "/var/log/journal": true, "/root/.ssh": false,
	} {
		now, err := recorder.Files.Filled(name)
		then, replayErr := host.Replay(s).Files.Filled(name)
		assert.True(t, now == want && err == nil && then == want && replayErr == nil,
			"%s: %v, %v; replayed %v, %v", name, now, err, then, replayErr)
	}
	text, err := json.Marshal(s)
	assert.True(t, err == nil && !strings.Contains(string(text), "S3cret"), "%v: %s", err, text)
}

// endless is a reader without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// endlessRules prints rules without an end.
type endlessRules struct{ host.Rules }

func (endlessRules) Dumps(_ context.Context, read func(string, io.Reader) error) error {
	return read("iptables-nft-save", endless{})
}

// TestSnapshotLimit: neither the rules of a recording nor a snapshot that is read can fill the memory.
func TestSnapshotLimit(t *testing.T) {
	h := (&hosttest.Machine{}).Host()
	h.Rules = endlessRules{}
	recorder, _ := host.Record(h)
	err := recorder.Rules.Dumps(t.Context(), func(string, io.Reader) error { return nil })
	want := "iptables-nft-save prints more than 64 MiB of rules, the limit of a snapshot"
	assert.True(t, err != nil && err.Error() == want, "recording: %v", err)
	_, err = host.ReadSnapshot(endless{})
	assert.True(t, err != nil && err.Error() == "reading snapshot: it is larger than 64 MiB", "reading: %v", err)
}
