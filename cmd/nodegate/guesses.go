package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
		case policy.IsPolicyFile(filepath.Base(arg)), strings.Contains(arg, "/") && missing == nil:
			if err := c.Flags().Set("policy", arg); err != nil {
				return nil, err
			}
		case strings.HasSuffix(arg, ".json") && missing == nil:
			return nil, fmt.Errorf("%s is no policy; `nodegate check --snapshot %[1]s` checks a recorded node", arg)
		case strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml"):
			return nil, fmt.Errorf("%s is no policy, which is HCL (*.hcl); `nodegate lint --kops %[1]s` reads a kops manifest", arg)
		default:
			others = append(others, arg)
		}
	}
	return others, nil
}

// policyArgs is the Args of a verb that takes policies as arguments, and nothing else.
func policyArgs(c *cobra.Command, args []string) error {
	others, err := takePolicies(c, args)
	if err == nil && len(others) > 0 {
		err = fmt.Errorf("%s takes policies (*.hcl), not %q; `nodegate check %[2]s` runs single checks", c.Name(), others[0])
	}
	return err
}

// wrongFlag returns the error for a flag that a command lacks, with the nearest flags.
func wrongFlag(c *cobra.Command, err error) error {
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	absent, is := errors.AsType[*pflag.NotExistError](err)
	if !is {
		return err
	}
	name := absent.GetSpecifiedName()
	if short := absent.GetSpecifiedShortnames(); short != "" { // -detailed-exitcode is a row of short flags to pflag
		name, _, _ = strings.Cut(short, "=")
	}
	switch use := foreignFlag(c.Name(), name); {
	case slices.Contains(known, name):
		return fmt.Errorf("%w; long flags have two dashes: --%s", err, name)
	case use != "":
		return fmt.Errorf("%w; %s", err, use)
	}
	near := strings.ReplaceAll(strings.ReplaceAll(policy.Nearest(name, known), ` "`, " --"), `"`, "")
	return fmt.Errorf("%w.%s List the flags with `%s --help`", err, near, c.CommandPath())
}

// foreignFlag returns what to use instead of a flag that kubectl, terraform, goss or trivy has.
func foreignFlag(verb, name string) string {
	switch name {
	case "only", "include":
		return "name the checks as arguments: nodegate check NAME..."
	case "exclude", "ignore":
		return "use --skip NAME of `nodegate check`"
	case "check", "dry-run":
		return "use `nodegate plan` to see the changes"
	case "o", "output":
		if verb == "lint" {
			return "use --format json; lint writes to standard output"
		}
	case "auto-approve", "y", "yes":
		return verb + " does not ask; leave it out"
	case "exit-code":
		return "the exit status is 1 if a requirement fails and 3 if one is unknown"
	case "severity":
		return "the severity of a requirement is an attribute of the policy"
	case "json":
		return "use --format json"
	case "unit":
		return "name the unit in the policy: gate { unit = \"NAME.service\" }"
	case "g", "gossfile":
		return "use --policy FILE"
	}
	return ""
}

// foreignVerb returns the verb for a word that kubectl, terraform, goss or trivy uses, or "".
func foreignVerb(word string) string {
	switch word {
	case "validate", "v", "test", "scan", "config", "verify", "doctor":
		return "`nodegate check` judges this node, and `nodegate lint FILE` a policy"
	case "format":
		return "use `nodegate fmt FILE`"
	case "diff":
		return "use `nodegate plan`"
	case "init", "add":
		return "use `nodegate install`"
	case "destroy", "delete", "remove":
		return "use `nodegate uninstall`, or `nodegate revert` for the settings alone"
	case "describe":
		return "use `nodegate explain NAME`"
	case "get", "show", "list", "ls":
		return "use `nodegate status`, `nodegate check -v` or `nodegate policy show --effective`"
	case "render":
		return "use `nodegate policy show --effective`"
	case "serve", "monitor", "daemon":
		return "use `nodegate watch --listen HOST:PORT`"
	case "import":
		return "use `nodegate policy import FILE...`"
	case "undo", "rollback":
		return "use `nodegate revert`"
	}
	return ""
}

// wrongCall returns the message for a call that cobra refused, without cobra's words, and with the right usage.
func wrongCall(c *cobra.Command, err error) string {
	message := report.Words(err)
	verb := strings.TrimPrefix(c.CommandPath(), "nodegate ")
	_, operands, _ := strings.Cut(c.Use, " ")
	unexpected := regexp.MustCompile(`^unknown command (".*") for "[^"]*"$`).FindStringSubmatch(message)
	received := regexp.MustCompile(`(?:only )?received (\d+)$`).FindStringSubmatch(message)
	switch {
	case received != nil && received[1] == "0":
		message = fmt.Sprintf("%s needs %s", verb, strings.Trim(operands, "[]"))
	case received != nil:
		message = fmt.Sprintf("%s takes %s, not %s arguments", verb, operands, received[1])
	case unexpected != nil && c.HasParent() && c.Runnable():
		if message = fmt.Sprintf("%s takes no argument %s", verb, unexpected[1]); c.Flags().Lookup("rules") != nil {
			message += "; give a file with --rules FILE, standard input with --rules -"
		}
	default:
		return message
	}
	return message + "; usage: " + c.UseLine()
}
