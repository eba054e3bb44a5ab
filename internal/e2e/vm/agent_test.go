package vm

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/e2e/qemu"
	"nodegate/internal/require"
)

// startAgent runs the guest's agent on this host, at the other end of a socket, as in the machine.
func startAgent(t *testing.T) *agent {
	t.Helper()
	port, theirs, err := qemu.SocketPair()
	require.NoError(t, err)
	cmd := exec.Command("sh", "rootfs/opt/vm/agent")
	cmd.Env = append(cmd.Environ(), "VM_AGENT_DIR="+t.TempDir())
	cmd.Stdin, cmd.Stdout = theirs, theirs
	require.NoError(t, cmd.Start())
	theirs.Close()
	a := newAgent(port)
	t.Cleanup(func() {
		_ = port.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, a.waitHello(ctx))
	return a
}

func TestAgentAnswers(t *testing.T) {
	a := startAgent(t)
	long := strings.Repeat("a line that makes the request and its answer long\n", 5000)
	for _, test := range []struct {
		script string
		want   Output
	}{
		{"echo out; echo err >&2; exit 3", Output{"out\n", "err\n", 3}},
		{"false; echo not reached", Output{"", "", 1}},
		{"cat", Output{}},
		{"printf 'no newline'", Output{"no newline", "", 0}},
		{"cat <<'E'\n" + long + "E\n", Output{long, "", 0}},
	} {
		got, err := a.run(t.Context(), test.script)
		require.NoError(t, err, "%.40q", test.script)
		assert.Equal(t, got, test.want, "%.40q", test.script)
	}
}

func TestAgentStopsALongScript(t *testing.T) {
	a := startAgent(t)
	ctx, cancel := context.WithTimeout(t.Context(), answerTime+time.Second)
	defer cancel()
	got, err := a.run(ctx, "echo before; sleep 60")
	require.NoError(t, err)
	assert.True(t, got.Code == 124 && got.Stdout == "before\n", "got %+v, want code 124 and the output so far", got)
	// The agent must still answer.
	if got, err := a.run(t.Context(), "echo after"); err != nil || got.Stdout != "after\n" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAgentThatIsGone(t *testing.T) {
	port, theirs, err := qemu.SocketPair()
	require.NoError(t, err)
	defer func() { _ = port.Close() }()
	theirs.Close()
	assert.ErrorContains(t, newAgent(port).waitHello(t.Context()), "has ended")
}

func TestAgentThatIsSilent(t *testing.T) {
	port, theirs, err := qemu.SocketPair()
	require.NoError(t, err)
	defer func() { _ = port.Close() }()
	defer theirs.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = newAgent(port).waitHello(ctx)
	assert.True(t, err != nil, "a silent agent passed for a greeting")
}

func TestParseAnswerRefusesNonsense(t *testing.T) {
	for _, line := range []string{"", "HELLO", "1 0 -", "2 0 - -", "1 x - -", "1 0 ! -", "1 0 - - -"} {
		out, err := parseAnswer("1", line)
		assert.True(t, err != nil, "%q: got %+v", line, out)
	}
}
