package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"nodegate/internal/host/netns"
	"nodegate/internal/host/program"
)

// PacketsCommand is the hidden command that answers a question by packets in a replica of the node.
const PacketsCommand = "packets"

// Packets starts PacketsCommand: the replica's memory and namespaces end with that process.
func (machineRules) Packets(ctx context.Context, question []byte) ([]byte, error) {
	if self, err := os.Executable(); err != nil || strings.HasSuffix(filepath.Base(self), ".test") { // it would run its tests
		return nil, errors.ErrUnsupported
	}
	return netns.RunAgain(ctx, []string{PacketsCommand}, question)
}

// BuildPackets starts PacketsCommand in a user namespace, for a process that may create no other.
func BuildPackets(ctx context.Context, captured []byte) ([]byte, error) {
	return netns.RunInUserNamespace(ctx, []string{PacketsCommand, "build"}, captured)
}

// Rehearse starts PacketsCommand in namespaces of its own; with inUser as root of a user namespace. It has the files from descriptor 3 on.
func Rehearse(ctx context.Context, rehearsal []byte, inUser bool, files ...*os.File) ([]byte, error) {
	part := map[bool]string{false: "rehearse", true: "rehearse in user namespace"}[inUser]
	return netns.RunApart(ctx, []string{PacketsCommand, part}, rehearsal, inUser, files...)
}

// Enter prepares a process that Rehearse started.
func Enter() error { return netns.MountProc() }

// UnitStates returns the ActiveState of systemd's units; none without systemd.
func UnitStates(ctx context.Context) map[string]string {
	states := map[string]string{}
	text, _ := program.Run(ctx, "systemctl", "list-units", "--all", "--plain", "--no-legend")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 2 {
			states[f[0]] = f[2]
		}
	}
	return states
}
