package host

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	godbus "github.com/godbus/dbus/v5"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

func TestLastError(t *testing.T) {
	const klog = "E1121 19:25:58.452529     132 run.go:72] \"command failed\" err="
	for _, c := range []struct{ log, want string }{
		{"", ""},
		{"one\ntwo\n", "two"},
		{"I1121 a\n" + klog + "\"x\"\nI1121 the last line, not an error\n", klog + "\"x\""},
		{klog + "<\n\tfailed to load: no kind\n >\n", klog + "< failed to load: no kind"},
		{"Error: unknown flag\nUsage:\n", "Error: unknown flag"},
	} {
		assert.Equal(t, lastError(c.log), c.want, "%q", c.log)
	}
}

func TestLastExit(t *testing.T) {
	const control = "kubelet.service: Control process exited, code=exited, status=1/FAILURE\n"
	const three = "kubelet.service: Main process exited, code=exited, status=3/FAILURE\n"
	const killed = "kubelet.service: Main process exited, code=killed, status=9/KILL\n"
	for log, want := range map[string]string{
		"": "", control: "", three: "exit status 3", three + control: "exit status 3", three + killed: "signal 9",
		killed + three: "exit status 3",
	} {
		assert.Equal(t, lastExit(log), want, "%q", log)
	}
}

// TestHeld uses the messages of systemd 252's src/core, in the order in which it writes them.
func TestHeld(t *testing.T) {
	const started, stopped = "Started kubelet.service - kubelet: The Kubernetes Node Agent.\n",
		"Stopped kubelet.service - kubelet: The Kubernetes Node Agent.\n"
	const control, main = "kubelet.service: Control process exited, code=exited, status=1/FAILURE\n",
		"kubelet.service: Main process exited, code=exited, status=1/FAILURE\n"
	log := func(starts ...string) string {
		var b strings.Builder
		for i, start := range starts {
			fmt.Fprintf(&b, "%skubelet.service: Scheduled restart job, restart counter is at %d.\n%s", start, i+1, stopped)
		}
		return b.String()
	}
	for _, c := range []struct {
		what, log      string
		restarts, want int
	}{
		{"an unreadable journal", "", 5, 0},
		{"a unit with LogLevelMax=notice", main + main + main, 3, 0},
		{"held", log(control, control, control), 3, 3},
		{"held, then runs", log(control, control, control) + started, 3, 3},
		{"no message about the control process (systemd 239)", log("", "", ""), 3, 3},
		{"a crash loop", log(started+main, started+main, started+main), 3, 0},
		{"a loop of successful exits", log(started, started, started), 3, 0},
		{"a loop of Type=notify", log(main, main, main), 3, 0},
		{"both", log(control, started+main, control, started+main), 4, 2},
		{"a loop before a manual start, then held", log(started+main, started+main, started+main) + started + stopped +
			log(control, control, control), 3, 3},
		{"held before a manual start, then a loop", log(control, control, control) + control + stopped +
			log(started+main, started+main, started+main), 3, 0},
		{"the last message is still missing", log(control, control), 3, 3},
		{"more restarts than the requested messages cover", strings.SplitAfterN(log(control, started+main, started+main, started+main), "\n", 3)[2], 4, 1},
	} {
		assert.Equal(t, countHeldRestarts(c.log, c.restarts), c.want, "%s", c.what)
	}
}

// TestAskAgain closes the connection instead of the first answer, as systemd does when it re-executes itself.
func TestAskAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "private")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	asked := 0
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveUnit(conn, map[string]godbus.Variant{"ActiveState": godbus.MakeVariant("active")}, func() bool { asked++; return asked > 1 })
		}
	}()
	m := &machineUnits{socket: path}
	defer m.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	active, _, err := m.state(ctx, "kubelet.service")
	require.NoError(t, err)
	assert.Equal(t, active, "active")
	assert.Equal(t, asked, 2)
}

// TestStops: only a stop is one. systemd lists the job of a restart with its own type while the unit stops.
func TestStops(t *testing.T) {
	type job struct {
		ID                uint32
		Unit, Type, State string
		Path, UnitPath    godbus.ObjectPath
	}
	for _, c := range []struct {
		unit, job string
		want      bool
	}{{"w.service", "stop", true}, {"w.service", "restart", false}, {"other.service", "stop", false}} {
		path := filepath.Join(t.TempDir(), "private")
		listener, err := net.Listen("unix", path)
		require.NoError(t, err)
		go func() {
			for { // godbus opens two connections
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go serveUnit(conn, []job{{7, c.unit, c.job, "running", "/j", "/u"}}, func() bool { return true })
			}
		}()
		m := &machineUnits{socket: path}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.Equal(t, m.stops(ctx, "w.service"), c.want, "%+v", c)
		m.Close()
		_ = listener.Close()
	}
}

// serveUnit speaks D-Bus: it authenticates anybody, and answers the first question while answers allows it.
func serveUnit(conn net.Conn, body any, answers func() bool) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	for line := ""; line != "BEGIN\r\n"; {
		line, _ = in.ReadString('\n')
		switch {
		case line == "":
			return
		case strings.Contains(line, "EXTERNAL"):
			fmt.Fprint(conn, "OK 0\r\n")
		case line == "NEGOTIATE_UNIX_FD\r\n":
			fmt.Fprint(conn, "ERROR\r\n")
		case strings.HasSuffix(line, "AUTH\r\n"):
			fmt.Fprint(conn, "REJECTED EXTERNAL\r\n")
		}
	}
	question, err := godbus.DecodeMessage(in)
	if err != nil || !answers() {
		return
	}
	answer := godbus.Message{Type: godbus.TypeMethodReply, Body: []any{body}, Headers: map[godbus.HeaderField]godbus.Variant{
		godbus.FieldReplySerial: godbus.MakeVariant(question.Serial()), godbus.FieldSignature: godbus.MakeVariant(godbus.SignatureOf(body)),
	}}
	_ = answer.EncodeTo(conn, binary.LittleEndian)
	_, _ = in.ReadByte() // until the client closes
}
