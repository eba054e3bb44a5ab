// Command nodegate makes a Linux machine fit to be a Kubernetes node, and
// proves that it is before kubelet starts.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/plain"
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
	growStack()
	os.Exit(run(untilSignal(os.Args[1:]), os.Args[1:]))
}

// growStack makes the stack as large as a check needs it, at once: doubled four times, with what is on it, it takes a tenth of a check.
//
//go:noinline
func growStack() byte {
	var frame [24 << 10]byte
	return frame[len(os.Args)%len(frame)]
}

func run(ctx context.Context, args []string) int {
	root := newRoot(args...)
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	if err == nil && !c.Runnable() { // help was printed: `probe brigde` in a script must not pass for a probe
		err = unknownVerb(c, c.Flags().Args())
	}
	var code exit
	switch {
	case err == nil:
		return exitPass
	case errors.As(err, &code):
		return int(code)
	}
	call := ""
	if said := err.Error(); strings.HasPrefix(said, "accepts ") || strings.HasPrefix(said, "requires ") ||
		strings.HasPrefix(said, "unknown ") && c.HasParent() && c.Runnable() {
		call = "; the call is: " + c.UseLine()
	}
	fmt.Fprintf(root.ErrOrStderr(), "nodegate: %v%s\n", err, call)
	return exitUsage
}

// verb is a word of the command line, and what makes its command.
type verb struct {
	name string
	new  func() *cobra.Command
}

func verbs() []verb {
	return []verb{
		{"check", newCheck}, {"plan", newPlan}, {"apply", newApply}, {"gate", newGate}, {"install", newInstall},
		{"uninstall", newUninstall}, {"revert", newRevert}, {"watch", newWatch}, {"status", newStatus}, {"publish", newPublish},
		{"audit", newAudit}, {"probe", newProbe}, {childCommand, newProbeChild}, {"lint", newLint}, {"fmt", newFmt}, {"policy", newPolicy},
		{"explain", newExplain}, {"snapshot", newSnapshot}, {"report", newReport}, {"preview", newPreview}, {"export", newExport},
		{"image", newImage}, {"version", newVersion},
	}
}

// newRoot returns the command for a call. Where the first of its args is a verb, no other one is there: their flags alone take 160 KiB.
func newRoot(args ...string) *cobra.Command {
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
	all := verbs()
	if called := slices.IndexFunc(all, func(v verb) bool { return len(args) > 0 && v.name == args[0] }); called >= 0 {
		all = all[called : called+1]
		root.CompletionOptions.DisableDefaultCmd = true
	}
	for _, v := range all {
		root.AddCommand(v.new())
	}
	return root
}
