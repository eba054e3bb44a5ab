package fleet_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// browser is a headless Chromium, driven through its debugging protocol over two pipes, without a port.
type browser struct {
	t       *testing.T
	in      io.Writer
	out     *bufio.Reader
	session string
	calls   int
	asked   []string // the addresses that pages requested
}

// startChromium starts Debian's chromium with one empty page, and stops it when the test ends.
func startChromium(t *testing.T) *browser {
	t.Helper()
	hosttest.NeedProgram(t, "chromium")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	ours, theirs := pipes(t)
	profile, err := os.MkdirTemp("", "nodegate-chromium-")
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--user-data-dir="+profile, "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = theirs
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	b := &browser{t: t, in: ours[0], out: bufio.NewReader(ours[1])}
	t.Cleanup(func() {
		fmt.Fprint(b.in, `{"id":0,"method":"Browser.close"}`+"\x00")
		// The exit status does not matter. Its helper processes may still run for a moment, and write files.
		_ = cmd.Wait()
		cancel()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		err := os.RemoveAll(profile)
		for tries := 0; err != nil && tries < 100; tries++ {
			time.Sleep(50 * time.Millisecond)
			err = os.RemoveAll(profile)
		}
		assert.NoError(t, err)
	})
	for _, f := range theirs {
		f.Close()
	}
	var made struct{ TargetID, SessionID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &made)
	b.call("Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &made)
	b.session = made.SessionID
	b.call("Network.enable", nil, nil)
	b.call("Page.enable", nil, nil)
	return b
}

// pipes returns our ends of two pipes, and Chromium's.
func pipes(t *testing.T) (ours, theirs []*os.File) {
	t.Helper()
	theirIn, ourOut, err := os.Pipe()
	require.NoError(t, err)
	ourIn, theirOut, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { ourOut.Close(); ourIn.Close() })
	return []*os.File{ourOut, ourIn}, []*os.File{theirIn, theirOut}
}

// call sends a command and waits for its response; read records the events until then.
func (b *browser) call(method string, params map[string]any, answer any) {
	b.t.Helper()
	b.calls++
	message := map[string]any{"id": b.calls, "method": method, "params": params}
	if params == nil {
		message["params"] = map[string]any{}
	}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	for {
		m := b.read(method)
		if m.ID != b.calls {
			continue
		}
		if m.Error.Message != "" {
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if answer != nil {
			if err := json.Unmarshal(m.Result, answer); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
		return
	}
}

type message struct {
	ID     int
	Method string
	Result json.RawMessage
	Error  struct{ Message string }
	Params struct {
		Request struct{ URL string }
	}
}

func (b *browser) read(waiting string) message {
	b.t.Helper()
	text, err := b.out.ReadBytes(0)
	if err != nil {
		b.t.Fatalf("%s: Chromium has gone: %v", waiting, err)
	}
	var m message
	if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
		b.t.Fatalf("%s: %v: %s", waiting, err, text)
	}
	if m.Method == "Network.requestWillBeSent" {
		b.asked = append(b.asked, m.Params.Request.URL)
	}
	return m
}

// open loads a page with the given width, in dark or light mode, and waits until it is loaded.
func (b *browser) open(url string, width int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	b.call("Emulation.setEmulatedMedia",
		map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	for b.eval("document.readyState + ' ' + location.href") != "complete "+url {
		time.Sleep(20 * time.Millisecond)
	}
}

// eval runs a script of the test: the page itself has no script, and its policy forbids scripts.
func (b *browser) eval(script string) string {
	b.t.Helper()
	var got struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Text string }
	}
	b.call("Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true}, &got)
	if got.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", script, got.ExceptionDetails.Text)
	}
	return fmt.Sprint(got.Result.Value)
}

// screenshot returns the top of the page as PNG.
func (b *browser) screenshot(width, height int) []byte {
	b.t.Helper()
	var got struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}, &got)
	png, err := base64.StdEncoding.DecodeString(got.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return png
}
