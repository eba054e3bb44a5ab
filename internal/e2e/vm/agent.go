package vm

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Output is the output and the exit code of a script in the guest. Code is 124 if the script ran into its time limit.
type Output struct {
	Stdout, Stderr string
	Code           int
}

const (
	scriptTime = time.Minute      // for a context without a deadline
	answerTime = 15 * time.Second // time for the answer, beyond the script's own time
)

// agent is the host's end of the port to rootfs/opt/vm/agent, which describes the protocol. It makes one call at a time.
type agent struct {
	conn net.Conn
	in   *bufio.Reader
	last int
}

func newAgent(conn net.Conn) *agent { return &agent{conn: conn, in: bufio.NewReader(conn)} }

// waitHello waits for the agent's greeting.
func (a *agent) waitHello(ctx context.Context) error {
	line, err := a.readLine(ctx)
	if err != nil {
		return fmt.Errorf("waiting for the agent: %w", err)
	}
	if line != "HELLO" {
		return fmt.Errorf("waiting for the agent: unexpected greeting %q", line)
	}
	return nil
}

func (a *agent) run(ctx context.Context, script string) (Output, error) {
	ctx, cancel := withDeadline(ctx, scriptTime)
	defer cancel()
	deadline, _ := ctx.Deadline()
	// The guest stops the script a little before the host stops waiting, so the answer still arrives.
	seconds := max(1, int((time.Until(deadline) - answerTime).Seconds()))
	a.last++
	id := strconv.Itoa(a.last)
	if err := a.conn.SetWriteDeadline(deadline); err != nil {
		return Output{}, fmt.Errorf("sending to the agent: %w", err)
	}
	request := fmt.Sprintf("%s %d %s\n", id, seconds, base64.StdEncoding.EncodeToString([]byte(script)))
	if _, err := io.WriteString(a.conn, request); err != nil {
		return Output{}, fmt.Errorf("sending to the agent: %w", err)
	}
	line, err := a.readLine(ctx)
	if err != nil {
		return Output{}, fmt.Errorf("waiting for the agent's answer: %w", err)
	}
	return parseAnswer(id, line)
}

// readLine reads a line until the context ends or reaches its deadline.
func (a *agent) readLine(ctx context.Context) (string, error) {
	deadline, _ := ctx.Deadline() // without one, the zero time also means no deadline
	if err := a.conn.SetReadDeadline(deadline); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = a.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := a.in.ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = errors.New("the machine has ended")
	}
	return strings.TrimSuffix(line, "\n"), err
}

// parseAnswer reads "ID EXITCODE BASE64(stdout) BASE64(stderr)".
func parseAnswer(id, line string) (Output, error) {
	bad := fmt.Errorf("the agent answered %.200q to request %s", line, id)
	fields := strings.Split(line, " ")
	if len(fields) != 4 || fields[0] != id {
		return Output{}, bad
	}
	code, err := strconv.Atoi(fields[1])
	if err != nil {
		return Output{}, bad
	}
	var text [2]string
	for i, field := range fields[2:] {
		if field == "-" {
			continue
		}
		b, err := base64.StdEncoding.DecodeString(field)
		if err != nil {
			return Output{}, bad
		}
		text[i] = string(b)
	}
	return Output{Stdout: text[0], Stderr: text[1], Code: code}, nil
}

// withDeadline adds a deadline to a context that lacks one.
func withDeadline(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit+answerTime)
}
