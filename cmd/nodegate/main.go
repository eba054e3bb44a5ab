// Command nodegate makes a Linux machine fit to be a Kubernetes node, and
// proves that it is before kubelet starts.
package main

import (
	"context"
	"errors"
	"fmt"
	"nodegate/internal/plain"
	"nodegate/internal/report"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// version is set by the build.
var version = "dev"

// Exit codes that scripts rely on.
const (
	exitPass    = 0
	exitFail    = 1 // a requirement fails
	exitUsage   = 2 // the call, the policy or the root is wrong; nothing was changed
	exitUnknown = 3 // it is not known whether a requirement passes
)

// exit ends the program with a code; everything is printed already.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() {
	os.Exit(run(untilSignal(), os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	var code exit
	switch {
	case err == nil:
		return exitPass
	case errors.As(err, &code):
		return int(code)
	}
	call := ""
	if said := err.Error(); strings.HasPrefix(said, "accepts ") || strings.HasPrefix(said, "requires ") ||
		strings.HasPrefix(said, "unknown ") && c.HasParent() {
		call = "; the call is: " + c.UseLine()
	}
	fmt.Fprintf(root.ErrOrStderr(), "nodegate: %v%s\n", err, call)
	return exitUsage
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "nodegate",
		Short: "Make a Linux machine fit to be a Kubernetes node, and prove it before kubelet starts",
		Long: `nodegate makes a Linux machine fit to be a Kubernetes node, and proves it before
kubelet starts: kernel modules, sysctls and link offloads, declared in
HCL, applied at boot, and checked by a gate that kubelet's start waits for.

Without --policy it uses what is installed in /etc/nodegate/policy.d, else the
built-in policy "kubernetes".

Exit status: 0 pass, 1 fail, 2 wrong call or policy, 3 unknown.`,
		Example: `  nodegate check                     what fails here, and why
  nodegate plan                      what apply would change
  nodegate install --root /mnt/image install it into an image
  nodegate lint my.hcl               is this policy right?`,
		PersistentPreRunE: begin,
		SilenceErrors:     true,
		SilenceUsage:      true,
	}
	// Nothing from outside reaches a terminal or a log raw.
	root.SetOut(plain.NewWriter(os.Stdout, report.Colours(os.Stdout)))
	root.SetErr(plain.NewWriter(os.Stderr, false))
	root.Flags().Bool("version", false, "print the version")
	root.RunE = func(c *cobra.Command, _ []string) error {
		if asked, _ := c.Flags().GetBool("version"); asked {
			_, err := fmt.Fprintln(c.OutOrStdout(), fullVersion())
			return err
		}
		return c.Help()
	}
	root.Args = unknownVerb
	root.SetHelpCommand(newHelp(root))
	root.AddCommand(
		newCheck(), newPlan(), newApply(), newGate(), newInstall(), newUninstall(), newRevert(), newWatch(),
		newStatus(), newPublish(), newAudit(), newProbe(), newProbeChild(), newLint(), newFmt(), newPolicy(),
		newExplain(), newSnapshot(), newReport(), newPreview(), newExport(), newImage(), newVerify(), newVersion(),
	)
	return root
}
