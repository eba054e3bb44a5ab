package host

import (
	"context"
	"fmt"

	"nodegate/internal/host/file"
	"nodegate/internal/host/program"
	"nodegate/internal/plain"
)

// Credential runs the credential plugin that a kubeconfig names, until ctx ends, and returns its
// output. command is an absolute path or a name; env adds variables. Credential refuses a
// kubeconfig or a plugin that a user other than root and the caller may write or replace: that user
// would decide which program root runs.
func Credential(ctx context.Context, kubeconfig, command string, args, env []string) ([]byte, error) {
	path, err := program.Find(command)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{kubeconfig, path} {
		open, err := file.WhoMayReplace("/", name)
		if err != nil {
			return nil, err
		}
		if len(open) > 0 {
			return nil, fmt.Errorf("refusing to run it: users other than root may write %s, and root would run their program; run `%s %s`",
				open[0].Place, open[0].Mend, plain.Quote(open[0].Place))
		}
	}
	return program.Secret(ctx, env, path, args...)
}
