package host

import (
	"context"
	"fmt"

	"nodegate/internal/host/file"
	"nodegate/internal/host/program"
	"nodegate/internal/plain"
)

// Credential runs a credential plugin, an absolute path or a name, that a kubeconfig names, with more variables, until ctx ends.
// It returns what the plugin printed. It refuses a kubeconfig or a plugin that others than root, and than the caller, may write
// or replace: they would decide what root runs.
func Credential(ctx context.Context, kubeconfig, command string, args, env []string) ([]byte, error) {
	path, err := program.Find(command)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{kubeconfig, path} {
		place, mend, err := file.MayOthersReplace(name)
		if err != nil {
			return nil, err
		}
		if mend != "" {
			return nil, fmt.Errorf("it is not run: others than root may write %s, and so would decide what root runs; run: %s %s",
				place, mend, plain.Quote(place))
		}
	}
	return program.Secret(ctx, env, path, args...)
}
