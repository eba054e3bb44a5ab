package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/spf13/cobra"
	"github.com/zclconf/go-cty/cty"

	"nodegate/checks/catalog"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host/config"
	"nodegate/internal/host/file"
	"nodegate/policy"
	"nodegate/policy/lint"
)

func newPolicyImport() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "import FILE|DIR...",
		Short: "Write a policy from sysctl.d and modules-load.d files",
		Long: `Import reads files of sysctl.d and modules-load.d, and writes a policy with the
same settings, the checks of the built-in policy "kubernetes", and an override
for each of its parameters that a line contradicts. As at boot, a file of /etc
overrides one of the same name in /usr/lib, a link to /dev/null masks it, files
count in the order of their names, and the last line for a parameter decides. A
comment names every line that was left out.

Exit status: 0, or 2 if a file cannot be read or the policy needs corrections.`,
		Example: `  nodegate policy import /etc/sysctl.d /etc/modules-load.d -o my.hcl
  nodegate policy import /etc/sysctl.d/*.conf /etc/modules-load.d/*.conf`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var in imported
			if err := in.read(args); err != nil {
				return err
			}
			switch settings := len(in.modules) + len(in.sysctls); {
			case settings == 0 && len(in.left) > 0:
				return fmt.Errorf("no setting found; left out: %s", strings.Join(in.left, "; "))
			case settings == 0:
				return fmt.Errorf("no setting found in %s; name directories such as sysctl.d and modules-load.d, or files", strings.Join(args, ", "))
			}
			wrote := report.Count(len(in.modules), "module") + ", " + report.Count(len(in.sysctls), "sysctl")
			text := in.policy()
			var err error
			if output == "" {
				_, err = exactWriter(c.OutOrStdout()).Write(text)
			} else {
				err = file.Output(output, text, 0o644)
			}
			if err != nil {
				return err
			}
			if output != "" {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: wrote %s: %s\n", output, wrote)
			}
			for _, l := range in.left {
				fmt.Fprintln(c.ErrOrStderr(), "nodegate: left out:", l)
			}
			files := []policy.File{{Name: cmp.Or(output, "the imported policy"), Text: text}}
			diags := lint.Lint(files, catalog.Known())
			policy.WriteDiagnostics(c.ErrOrStderr(), files, diags)
			if diags.HasErrors() {
				fmt.Fprintf(c.ErrOrStderr(), "nodegate: %s in the written policy; correct it there\n", report.Count(len(diags.Errs()), "mistake"))
				return exit(exitUsage)
			}
			return nil
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "write to `FILE` instead of standard output")
	return c
}

// moduleLetters are the characters of a module's name.
const moduleLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// imported is the settings of sysctl.d and modules-load.d files.
type imported struct {
	modules  []string          // in the order of the files
	at       map[string]string // module -> its place
	sysctls  []config.Setting  // the line that decides, for each key
	excluded []config.Setting  // keys that globs leave alone
	left     []string          // lines that the policy does not have
}

// read reads files, and the *.conf files of directories as systemd does, in the order of their names.
func (in *imported) read(args []string) error {
	in.at = map[string]string{}
	var files []config.File
	dirs := map[string][]string{} // sysctl.d -> such directories
	for _, arg := range args {
		if arg == "-" {
			arg = stdinName
		}
		info, err := os.Stat(arg)
		if err != nil {
			return err
		}
		if kind := kindOf(arg + "/"); info.IsDir() {
			dirs[kind] = append(dirs[kind], arg)
			continue
		}
		if to, _ := os.Readlink(arg); to == os.DevNull {
			continue
		}
		text, err := file.ReadInput(arg, policy.MaxFileSize)
		if err != nil {
			return err
		}
		if bytes.ContainsRune(text, 0) {
			return fmt.Errorf("%s is not a text file; name files of sysctl.d and modules-load.d", arg)
		}
		files = append(files, config.File{Path: arg, Text: text})
	}
	for kind, all := range dirs {
		slices.SortStableFunc(all, func(a, b string) int { return precedence(a, kind) - precedence(b, kind) })
		found, err := config.Collect(inputFiles{&in.left}, all, ".conf")
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	slices.SortStableFunc(files, func(a, b config.File) int { return cmp.Compare(filepath.Base(a.Path), filepath.Base(b.Path)) })
	for _, f := range files {
		switch kind := kindOf(f.Path); {
		case kind == "modprobe.d":
			in.left = append(in.left, f.Path+": a file of modprobe.d; write its options in a module block, and absent = true for install or "+
				"blacklist")
		case kind == "modules-load.d" || kind != "sysctl.d" && isModulesList(f.Text):
			in.readModules(f.Path, f.Text)
		default:
			in.readSysctls(f.Path, f.Text)
		}
	}
	in.dropExcluded()
	return nil
}

// kindOf returns the name of a file's directory, such as sysctl.d.
func kindOf(name string) string {
	abs, _ := filepath.Abs(filepath.Dir(name)) // fails only if the working directory is gone
	return filepath.Base(abs)
}

// precedence returns the place of a directory below any root in the order in which systemd's directories override each other.
func precedence(dir, kind string) int {
	abs, _ := filepath.Abs(dir)
	return slices.IndexFunc(config.Dirs(kind), func(of string) bool { return strings.HasSuffix(abs, of) })
}

// inputFiles reads files that are named on the command line, and lists the links to missing files.
type inputFiles struct{ left *[]string }

func (in inputFiles) ReadFile(name string) ([]byte, error) {
	text, err := file.ReadInput(name, policy.MaxFileSize)
	if errors.Is(err, fs.ErrNotExist) {
		*in.left = append(*in.left, name+": a link to a missing file")
	}
	return text, err
}
func (inputFiles) ReadDir(name string) ([]string, error) { return file.ListDir(name) }
func (inputFiles) ReadLink(name string) (string, error)  { return os.Readlink(name) }

// dropExcluded leaves out the globs with an exclusion that no line for the same key replaces.
func (in *imported) dropExcluded() {
	in.sysctls = slices.DeleteFunc(in.sysctls, func(s config.Setting) bool {
		i := slices.IndexFunc(in.excluded, func(e config.Setting) bool {
			matches, _ := path.Match(s.Key, e.Key)
			return matches
		})
		if i >= 0 {
			in.left = append(in.left, fmt.Sprintf("%s: %s = %s: %s excludes %s, which a policy cannot; require the others by name, "+
				"or in a link block",
				s.At(), policy.Key(s.Key), s.Value, in.excluded[i].At(), policy.Key(in.excluded[i].Key)))
		}
		return i >= 0
	})
}

// isModulesList reports whether no line of a file assigns a value. It decides for a file outside systemd's directories.
func isModulesList(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' && line[0] != ';' && (strings.Contains(line, "=") || line[0] == '-') {
			return false
		}
	}
	return true
}

func (in *imported) readModules(name string, text []byte) {
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case strings.Trim(line, moduleLetters) != "":
			in.left = append(in.left, fmt.Sprintf("%s: %q: not a module's name", config.At(name, i+1), line))
		case in.at[line] == "":
			in.at[line] = config.At(name, i+1)
			in.modules = append(in.modules, line)
		}
	}
}

func (in *imported) readSysctls(name string, text []byte) {
	call := regexp.MustCompile( // in a script
		`(?m)^[ \t]*sysctl[ \t]+(?:-\w+[ \t]+)*([\w./*-]+)=(?:"([^"$\n]*)"|([^\s"'#;&|$]*))[ \t]*(?:#.*)?$`)
	settings, err := config.ParseSysctl(name, call.ReplaceAll(text, []byte("$1=$2$3")))
	if err != nil {
		in.left = append(in.left, strings.Split(err.Error(), "\n")...)
	}
	for _, s := range settings {
		in.excluded = slices.DeleteFunc(in.excluded, func(e config.Setting) bool { return e.Key == s.Key })
		if i := slices.IndexFunc(in.sysctls, func(o config.Setting) bool { return o.Key == s.Key }); i >= 0 {
			before := in.sysctls[i]
			in.left = append(in.left, fmt.Sprintf("%s: %s = %s: %s replaces it", before.At(), policy.Key(before.Key), before.Value, s.At()))
			in.sysctls = slices.Delete(in.sysctls, i, i+1)
		}
		if s.Exclude {
			in.excluded = append(in.excluded, s)
		} else {
			in.sysctls = append(in.sysctls, s)
		}
	}
}

// policy returns the settings as a formatted policy.
func (in *imported) policy() []byte {
	var b bytes.Buffer
	b.WriteString("# From `nodegate policy import`. Replace each reason by what the setting is for: the operator of a held node reads it.\n" +
		"# The built-in policy has the checks of a Kubernetes node; without its use block only the settings below are required.\n")
	for _, l := range in.left {
		fmt.Fprintf(&b, "# Left out: %s\n", strings.Map(printableRune, l))
	}
	b.WriteString("\nuse \"kubernetes\" {}\n")
	f := hclwrite.NewEmptyFile()
	for _, m := range in.modules {
		f.Body().AppendNewline()
		f.Body().AppendNewBlock("module", []string{m}).Body().SetAttributeValue("reason", cty.StringVal("Imported from "+in.at[m]+"."))
	}
	in.appendOverrides(f.Body())
	b.Write(f.Bytes())
	in.writeSysctls(&b, false)
	in.writeSysctls(&b, true)
	return hclwrite.Format(b.Bytes())
}

// appendOverrides writes an override for each parameter of the built-in policy that an imported line contradicts. It replaces the line,
// unless that has the parameter's other name.
func (in *imported) appendOverrides(to *hclwrite.Body) {
	builtin, _ := policy.Builtin("kubernetes")
	p, _ := policy.Load([]policy.File{builtin}, catalog.Known())
	done := map[int]bool{}
	in.sysctls = slices.DeleteFunc(in.sysctls, func(s config.Setting) bool {
		own := policy.Sysctl{Key: policy.Key(s.Key), Value: strings.Join(strings.Fields(s.Value), " ")}
		i := slices.IndexFunc(p.Sysctls, func(b policy.Sysctl) bool { return b.Key.Means(own.Key) && own.Contradicts(b) })
		if i < 0 || done[i] {
			return i >= 0 && p.Sysctls[i].Key == own.Key
		}
		done[i] = true
		to.AppendNewline()
		b := to.AppendNewBlock("override", []string{p.Sysctls[i].Key.CheckName()}).Body()
		b.SetAttributeValue("value", literalOf(s))
		if s.Lenient {
			b.SetAttributeValue("severity", cty.StringVal(string(policy.Warn)))
		}
		b.SetAttributeValue("reason", cty.StringVal("Imported from "+strings.Map(printableRune, s.At())+"."))
		return p.Sysctls[i].Key == own.Key
	})
}

// literalOf returns the value of a line, a number as such.
func literalOf(s config.Setting) cty.Value {
	if n, err := strconv.ParseInt(s.Value, 10, 64); err == nil && strconv.FormatInt(n, 10) == s.Value {
		return cty.NumberIntVal(n)
	}
	return cty.StringVal(strings.Join(strings.Fields(s.Value), " "))
}

// writeSysctls writes the parameters in one block: those whose failure sysctl(8) ignores, or the others.
func (in *imported) writeSysctls(b *bytes.Buffer, lenient bool) {
	all := slices.DeleteFunc(slices.Clone(in.sysctls), func(s config.Setting) bool { return s.Lenient != lenient })
	if len(all) == 0 {
		return
	}
	severity := ""
	if lenient {
		severity = "severity = \"warn\"\n"
	}
	fmt.Fprintf(b, "\nsysctls {\nreason = \"Imported.\"\n%svalues = {\n", severity)
	for _, s := range all {
		key := hclwrite.TokensForValue(cty.StringVal(policy.Key(s.Key).String())).Bytes()
		fmt.Fprintf(b, "%s = %s # %s\n", key, hclwrite.TokensForValue(literalOf(s)).Bytes(), strings.Map(printableRune, s.At()))
	}
	b.WriteString("}\n}\n")
}

// printableRune replaces what would end a comment.
func printableRune(r rune) rune {
	if strconv.IsPrint(r) {
		return r
	}
	return '?'
}
