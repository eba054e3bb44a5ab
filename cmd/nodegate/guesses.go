package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nodegate/checks/catalog"
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
		case strings.HasSuffix(arg, ".json") && missing == nil:
			return nil, fmt.Errorf("to read %s as a policy, write --policy %[1]s; `nodegate check --snapshot %[1]s` checks a recorded node", arg)
		case strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml"):
			return nil, fmt.Errorf("%s is no policy, which is HCL (*.hcl); `nodegate lint --kops %[1]s` reads a kops manifest", arg)
		default:
			others = append(others, arg)
		}
	}
	return others, nil
}

// asPolicy returns how to read a file or directory as a policy, or as a machine's tree, or "" if none has the name.
func asPolicy(name string) string {
	if name == "-" {
		return "to read a policy from standard input, write --policy /dev/stdin"
	}
	info, err := os.Stat(name)
	if err != nil && !filepath.IsAbs(name) {
		return ""
	}
	if found, _ := filepath.Glob(filepath.Join(name, "*.hcl")); found == nil && (err != nil || info.IsDir()) {
		return "to use it as a machine's file tree, write --root " + name
	}
	return "to read it as a policy, write --policy " + name
}

// policyArgs is the Args of a verb that takes policies as arguments, and nothing else.
func policyArgs(c *cobra.Command, args []string) error {
	others, err := takePolicies(c, args)
	if err != nil || len(others) == 0 {
		return err
	}
	name, use := others[0], ""
	all, _ := catalog.Explain() // without it no check is proposed
	for _, e := range all {
		if e.Name == name || use == "" && strings.HasSuffix(e.Name, "."+name) {
			use = "`nodegate check " + e.Name + "` runs single checks"
		}
	}
	if slices.ContainsFunc(verbs(), func(v verb) bool { return v.name == name }) {
		use = "one call has one verb"
	}
	use = cmp.Or(asPolicy(name), use)
	return errors.New(strings.TrimSuffix(fmt.Sprintf("%s takes policies (*.hcl), not %q; %s", c.Name(), name, use), "; "))
}

// wrongFlag returns the error for a flag that a command lacks, with the nearest flags.
func wrongFlag(c *cobra.Command, err error) error {
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	if bad, is := errors.AsType[*pflag.InvalidValueError](err); is && bad.GetFlag().Value.Type() == "duration" {
		return fmt.Errorf("--%s %s: write a number with its unit, for example 5s, 2m or 1h", bad.GetFlag().Name, bad.GetValue())
	}
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

// instead returns the second text of the row whose first has the word, or "".
func instead(word string, rows [][2]string) string {
	for _, row := range rows {
		if slices.Contains(strings.Fields(row[0]), word) {
			return row[1]
		}
	}
	return ""
}

// foreignFlag returns what to use instead of a flag that kubectl, terraform, goss or trivy has.
func foreignFlag(verb, name string) string {
	rows := [][2]string{
		{"lint:o lint:output", "use --format json; lint writes to standard output"},
		{"revert:root", "for a file tree run `nodegate uninstall --root DIR`"},
		{"only include", "name the checks as arguments: nodegate check NAME..."},
		{"exclude ignore", "use --skip NAME of `nodegate check`"},
		{"fix repair", "use `nodegate apply`"},
		{"check dry-run", "use `nodegate plan` to see the changes"},
		{"auto-approve y yes", verb + " does not ask; leave it out"},
		{"exit-code", "the exit status is 1 if a requirement fails and 3 if one is unknown"},
		{"severity", "the severity of a requirement is an attribute of the policy"},
		{"json", "use --format json"},
		{"unit", "name the unit in the policy: gate { unit = \"NAME.service\" }"},
		{"g gossfile", "use --policy FILE"},
	}
	return cmp.Or(instead(verb+":"+name, rows), instead(name, rows))
}

// foreignVerb returns the verb for a word that kubectl, terraform, goss or trivy uses, or "".
func foreignVerb(word string) string {
	return instead(word, [][2]string{
		{"validate v test scan config verify doctor", "`nodegate check` judges this node, and `nodegate lint FILE` a policy"},
		{"format", "use `nodegate fmt FILE`"},
		{"fix repair", "use `nodegate apply`"},
		{"diff", "use `nodegate plan`, or `nodegate policy diff` for two policies"},
		{"add", "use `nodegate install`"},
		{"init", "use `nodegate policy import /etc/sysctl.d` to write a policy, and `nodegate install` to put one in force"},
		{"destroy delete remove", "use `nodegate uninstall`, or `nodegate revert` for the settings alone"},
		{"describe", "use `nodegate explain NAME`"},
		{"get show list ls", "use `nodegate status`, `nodegate check -v` or `nodegate policy show --effective`"},
		{"render", "use `nodegate policy show --effective`"},
		{"serve monitor daemon", "use `nodegate watch --listen HOST:PORT`"},
		{"disable off stop", "`touch /etc/nodegate/disabled` opens the gate, and `nodegate uninstall` removes it"},
		{"import", "use `nodegate policy import FILE...`"},
		{"undo rollback", "use `nodegate revert`"},
	})
}

// wrongCall returns the message for a call that cobra refused, without cobra's words, and with the right usage.
func wrongCall(c *cobra.Command, err error) string {
	message := report.Words(err)
	verb := strings.TrimPrefix(c.CommandPath(), "nodegate ")
	_, operands, _ := strings.Cut(c.Use, " ")
	excluding := regexp.MustCompile(`^if any flags in the group \[(\S+) (\S+)\] are set none of the others can be`).FindStringSubmatch(message)
	unexpected := regexp.MustCompile(`^unknown command (".*") for "[^"]*"$`).FindStringSubmatch(message)
	received := regexp.MustCompile(`(?:only )?received (\d+)$`).FindStringSubmatch(message)
	switch {
	case received != nil && received[1] == "0":
		message = fmt.Sprintf("%s needs %s", verb, strings.Trim(operands, "[]"))
	case received != nil:
		message = fmt.Sprintf("%s takes %s, not %s arguments", verb, operands, received[1])
	case excluding != nil:
		return fmt.Sprintf("--%s and --%s exclude each other; leave out one", excluding[1], excluding[2])
	case unexpected != nil && c.HasParent() && c.Runnable():
		if message = fmt.Sprintf("%s takes no argument %s", verb, unexpected[1]); c.Flags().Lookup("rules") != nil {
			message += "; give a file with --rules FILE, standard input with --rules -"
		}
	default:
		return message
	}
	if unexpected != nil && policy.IsPolicyFile(strings.Trim(unexpected[1], `"`)) && c.Flags().Lookup("policy") != nil {
		return message + "; write --policy " + strings.Trim(unexpected[1], `"`)
	}
	return message + "; usage: " + c.UseLine()
}
