package datapath

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"nodegate/internal/host/netns"
)

// childAnswer is the output of ChildMain.
type childAnswer struct {
	Result BridgeResult `json:"result"`
	Error  string       `json:"error,omitempty"`
	Denied bool         `json:"denied,omitempty"` // the error is a lack of privilege
}

// bridgeInChild runs the probe in a child of this program, in a user namespace.
func bridgeInChild(ctx context.Context, o BridgeOptions) (BridgeResult, error) {
	input, err := json.Marshal(o)
	if err != nil {
		return BridgeResult{}, err
	}
	out, err := netns.RunInUserNamespace(ctx, o.Child, input)
	if err != nil {
		return BridgeResult{}, err
	}
	var a childAnswer
	if err := json.Unmarshal(out, &a); err != nil {
		return BridgeResult{}, fmt.Errorf("reading the output of the child: %w", err)
	}
	a.Result.Where = InUserNamespace
	switch {
	case a.Denied: // root of the namespace, but not allowed
		return a.Result, fmt.Errorf("in a user namespace: %s; check whether kernel.apparmor_restrict_unprivileged_userns "+
			"removes its privileges: %w", a.Error, fs.ErrPermission)
	case a.Error != "":
		return a.Result, errors.New("in a user namespace: " + a.Error)
	}
	return a.Result, nil
}

// ChildMain is the counterpart of BridgeOptions.Child: a hidden command that this package starts as root
// of a user namespace. It reads BridgeOptions as JSON from in, probes in a scratch namespace, and writes
// one JSON object to out. It returns an error only if it cannot read from in or write to out; the output
// holds the result of the probe and its errors. The command must print nothing else on standard output
// and exit with 0 unless ChildMain returns an error.
func ChildMain(ctx context.Context, in io.Reader, out io.Writer) error {
	var o BridgeOptions
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("reading the options of a bridge probe: %w", err)
	}
	o.InScratch, o.Child = true, nil
	r, err := Bridge(ctx, o)
	a := childAnswer{Result: r}
	if err != nil {
		a.Error, a.Denied = err.Error(), errors.Is(err, fs.ErrPermission)
	}
	return json.NewEncoder(out).Encode(a)
}
