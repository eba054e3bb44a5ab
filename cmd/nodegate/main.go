// Command nodegate makes a Linux machine fit to be a Kubernetes node, and
// proves it before kubelet starts.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/plain"
)

// version is set by the build.
var version = "dev"

// Exit codes that scripts rely on.
const (
	exitPass    = 0
	exitFail    = 1 // a requirement fails
	exitUsage   = 2 // the call, the policy or --root is invalid; nothing was changed
	exitUnknown = 3 // could not determine whether a requirement passes
)

// exit is an error that ends the program with this exit code. The message is printed already.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() {
	growStack()
	if len(os.Args) > 1 && slices.Contains([]string{"gate", "apply", "watch"}, os.Args[1]) {
		os.Stdout, os.Stderr = outlet(os.Stdout), outlet(os.Stderr)
	}
	os.Exit(run(untilSignal(os.Args[1:]), os.Args[1:]))
}

// outlet returns standard output or error under another descriptor. Go ends a process whose write to descriptor 1 or 2 finds no
// reader, even if its parent ignores SIGPIPE (os/signal); a write to any other descriptor returns an error. A handler of the signal
// would do as well, and takes a tenth of a check.
func outlet(f *os.File) *os.File {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return f // it is closed
	}
	return os.NewFile(uintptr(fd), f.Name())
}

// growStack grows the stack to the size of a check at once: doubling it four times, with its content, costs a tenth of a check.
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
	fmt.Fprintf(root.ErrOrStderr(), "nodegate: %s\n", repeated(c)(wrongCall(c, err)))
	return exitUsage
}

// verb is a verb of the command line with the constructor of its command, and the words of other tools for it.
type verb struct {
	name   string
	new    func() *cobra.Command
	others string
}

func verbs() []verb {
	return []verb{
		{"check", newCheck, "validate test scan verify doctor"}, {"plan", newPlan, "diff"}, {"apply", newApply, "fix repair"},
		{"gate", newGate, ""}, {"install", newInstall, "init add"}, {"uninstall", newUninstall, "destroy delete remove disable stop"},
		{"revert", newRevert, "undo rollback"}, {"watch", newWatch, "serve monitor daemon"}, {"status", newStatus, "get list"},
		{"publish", newPublish, ""}, {"audit", newAudit, ""}, {"probe", newProbe, ""}, {"rehearse", newRehearse, ""},
		{packetsCommand, newPackets, ""},
		{"lint", newLint, "validate config"}, {"fmt", newFmt, "format"}, {"policy", newPolicy, "diff show import render"},
		{"explain", newExplain, "describe"}, {"snapshot", newSnapshot, ""}, {"report", newReport, ""}, {"preview", newPreview, ""},
		{"export", newExport, ""}, {"version", newVersion, ""},
	}
}

// coreVerbs are the verbs that help lists first.
func coreVerbs() []string { return []string{"check", "plan", "install", "gate", "status", "explain"} }

// newRoot returns the root command for a call. If the first argument is a verb, newRoot adds only that verb: the flags of all verbs
// take 160 KiB.
func newRoot(args ...string) *cobra.Command {
	root := &cobra.Command{
		Use:   "nodegate",
		Short: "Make a Linux machine fit for Kubernetes, and prove it before kubelet starts",
		Long: `nodegate makes a Linux machine fit to be a Kubernetes node, and proves it
before kubelet starts. A policy in HCL declares kernel modules, sysctls and
link offloads. nodegate applies them at boot, and a gate holds kubelet until
they pass.

Without --policy, nodegate uses the policy installed in /etc/nodegate/policy.d,
or else the built-in policy "kubernetes".

Exit status: 0 pass, 1 fail, 2 usage or policy error, 3 unknown.`,
		Example: `  nodegate check                       show what fails here, and why
  nodegate plan                        preview the changes of apply
  nodegate install --root /mnt/image   install into an image
  nodegate lint my.hcl                 find the mistakes in a policy`,
		PersistentPreRunE: checkFlags,
		SilenceErrors:     true,
		SilenceUsage:      true,
	}
	// Escape control characters from outside before they reach a terminal or a log.
	root.SetOut(plain.NewWriter(os.Stdout, report.Colours(os.Stdout)))
	root.SetErr(plain.NewWriter(os.Stderr, false))
	root.Flags().BoolP("version", "V", false, "print the version")
	root.RunE = func(c *cobra.Command, _ []string) error {
		if asked, _ := c.Flags().GetBool("version"); asked {
			_, err := fmt.Fprintln(c.OutOrStdout(), fullVersion())
			return err
		}
		return c.Help()
	}
	root.Args = unknownVerb
	root.SetHelpCommand(newHelp(root))
	root.SetUsageFunc(writeUsage)
	root.SetFlagErrorFunc(wrongFlag)
	all := verbs()
	if called := slices.IndexFunc(all, func(v verb) bool { return len(args) > 0 && v.name == args[0] }); called >= 0 {
		all = all[called : called+1]
		root.CompletionOptions.DisableDefaultCmd = true
	}
	root.AddGroup(&cobra.Group{ID: "core", Title: "Core Commands:"}, &cobra.Group{ID: "more", Title: "More Commands:"})
	root.SetHelpCommandGroupID("more")
	root.SetCompletionCommandGroupID("more")
	for _, v := range all {
		c := v.new()
		c.GroupID, c.SuggestFor = "more", strings.Fields(v.others)
		if slices.Contains(coreVerbs(), v.name) {
			c.GroupID = "core"
		}
		root.AddCommand(c)
	}
	return root
}
