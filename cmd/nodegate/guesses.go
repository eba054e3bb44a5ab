package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/policy"
)

// takePolicies gives the arguments that name policies to --policy, and returns the others. A name of a check has neither the extension
// of a policy nor, in a file's place, a slash.
func takePolicies(c *cobra.Command, args []string) (others []string, err error) {
	for _, arg := range args {
		_, missing := os.Stat(arg)
		switch {
		case arg == "":
			return nil, errors.New("a name is empty; is a variable in your script unset?")
		case policy.IsPolicyFile(filepath.Base(arg)), strings.Contains(arg, "/") && missing == nil:
			if err := c.Flags().Set("policy", arg); err != nil {
				return nil, err
			}
		default:
			others = append(others, arg)
		}
	}
	return others, nil
}

// policyArgs is the Args of a verb that takes policies as arguments, and nothing else.
func policyArgs(c *cobra.Command, args []string) error {
	others, err := takePolicies(c, args)
	if err != nil || len(others) == 0 {
		return err
	}
	return fmt.Errorf("%s takes policies (*.hcl), not %q; `nodegate check NAME` runs single checks, and --policy DIR reads a directory",
		c.Name(), others[0])
}

// wrongFlag completes the error for a flag that a command lacks by the nearest flags.
func wrongFlag(c *cobra.Command, err error) error {
	absent, is := errors.AsType[*pflag.NotExistError](err)
	if !is {
		return err
	}
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	name := absent.GetSpecifiedName()
	if short := absent.GetSpecifiedShortnames(); short != "" { // -policy is a row of short flags to pflag
		name, _, _ = strings.Cut(short, "=")
	}
	near := strings.ReplaceAll(strings.ReplaceAll(policy.Nearest(name, known), ` "`, " --"), `"`, "")
	return fmt.Errorf("%w.%s List the flags with `%s --help`", err, near, c.CommandPath())
}

// wrongCall returns the message for a call that cobra refused. To a wrong number of arguments it adds the usage.
func wrongCall(c *cobra.Command, err error) string {
	message := report.Words(err)
	if strings.HasSuffix(message, fmt.Sprintf(" for %q", c.CommandPath())) { // of cobra.NoArgs
		message = strings.Replace(message, "unknown command", "unexpected argument", 1)
	}
	if regexp.MustCompile(`received \d+$|^unexpected argument`).MatchString(message) {
		message += "; usage: " + c.UseLine()
	}
	return message
}
