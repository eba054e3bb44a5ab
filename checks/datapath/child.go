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

// answer is what ChildMain writes.
type answer struct {
	Result BridgeResult `json:"result"`
	Error  string       `json:"error,omitempty"`
	Denied bool         `json:"denied,omitempty"` // the error is for want of privilege
}

// bridgeInChild probes in this program's child, in a user namespace.
func bridgeInChild(ctx context.Context, o BridgeOptions) (BridgeResult, error) {
	input, err := json.Marshal(o)
	if err != nil {
		return BridgeResult{}, err
	}
	out, err := netns.RunInUserNamespace(ctx, o.Child, input)
	if err != nil {
		return BridgeResult{}, err
	}
	var a answer
	if err := json.Unmarshal(out, &a); err != nil {
		return BridgeResult{}, fmt.Errorf("reading the answer of the child: %w", err)
	}
	a.Result.Where = InUserNamespace
	switch {
	case a.Denied: // root of the namespace, and yet not allowed
		return a.Result, fmt.Errorf("in a user namespace: %s; does kernel.apparmor_restrict_unprivileged_userns take its privileges "+
			"away? (%w)", a.Error, fs.ErrPermission)
	case a.Error != "":
		return a.Result, errors.New("in a user namespace: " + a.Error)
	}
	return a.Result, nil
}

// ChildMain is the other side of BridgeOptions.Child: a hidden command that this
// package starts as root of a user namespace. It reads BridgeOptions as JSON
// from in, probes in a scratch namespace, and writes one JSON object to out. An
// error is one of in or out only: what the probe found, also that it could not
// tell, is in the answer. The command must print nothing else on standard
// output and exit with 0 unless there is an error.
func ChildMain(ctx context.Context, in io.Reader, out io.Writer) error {
	var o BridgeOptions
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("reading the options of a bridge probe: %w", err)
	}
	o.InScratch, o.Child = true, nil
	r, err := Bridge(ctx, o)
	a := answer{Result: r}
	if err != nil {
		a.Error, a.Denied = err.Error(), errors.Is(err, fs.ErrPermission)
	}
	return json.NewEncoder(out).Encode(a)
}
