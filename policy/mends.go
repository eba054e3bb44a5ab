package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// The line to write instead of a mistake that HCL's own messages only name.

// mendUnknown rewrites HCL's messages about unknown blocks and attributes: they list the known ones, and give the line to write.
func mendUnknown(diags hcl.Diagnostics, owner string, s *hcl.BodySchema, text []byte) hcl.Diagnostics {
	var attributes, blocks []string
	for _, a := range s.Attributes {
		attributes = append(attributes, a.Name)
	}
	for _, b := range s.Blocks {
		blocks = append(blocks, b.Type)
	}
	for _, d := range diags {
		if own := ownLine(owner, text, d.Subject); own != "" {
			d.Detail = own
			continue
		}
		if of, is := nameless(d.Summary); is {
			d.Detail = "Write one name, in quotes, before {: " + lineOf(of)
			continue
		}
		_, name, _ := strings.Cut(d.Detail, `"`)
		name, _, quoted := strings.Cut(name, `"`)
		known := slices.Concat(attributes, blocks)
		switch {
		case !quoted:
			continue
		case d.Summary == "Unsupported argument" && slices.Contains(blocks, name):
			d.Detail = fmt.Sprintf("%s is a block, without =. Write: %s", name, lineOf(name))
			continue
		case d.Summary == "Unsupported block type" && slices.Contains(attributes, name):
			d.Detail = fmt.Sprintf("%s is an attribute: put = before {. Write: %[1]s = { ... }", name)
			continue
		case d.Summary != "Unsupported argument" && d.Summary != "Unsupported block type":
			continue
		}
		hint := didYouMean(name, known)
		if write := insteadOf(owner, name); write != "" {
			hint = " Write: " + write + "."
		}
		where := map[bool]string{true: "a policy", false: owner}[owner == ""]
		d.Detail = fmt.Sprintf("%s has no %q.%s It has %s.", where, name, hint, strings.Join(known, ", "))
	}
	return diags
}

// ownLine returns the remedy that has the author's own words, or "". The subject is in the text.
func ownLine(owner string, text []byte, subject *hcl.Range) string {
	if subject == nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text[min(subject.Start.Byte, len(text)):]), "\n")
	for _, mend := range [][2]string{
		{`^\w+ count\s*=\s*[^0\s].*`, "A block is there once. Remove the line."},
		{`^ (?:resource|data)\s+"(module|sysctl|sysfs|link|check|probe|variable)"\s+("[^"]*")\s*\{.*`, "Write: $1 $2 {"},
		{`^link match\s*=\s*(\{[^{}]*\}|\{).*`, "match is a block, without =. Write: match $1"},
	} {
		if line := owner + " " + line; regexp.MustCompile(mend[0]).MatchString(line) {
			return regexp.MustCompile(mend[0]).ReplaceAllString(line, mend[1])
		}
	}
	return ""
}

// nameless returns the type of a block without a name, or with several, from HCL's summary.
func nameless(summary string) (blockType string, is bool) {
	if of, missing := strings.CutPrefix(summary, "Missing name for "); missing {
		return of, true
	}
	return strings.CutPrefix(summary, "Extraneous label for ")
}

// lineOf returns a block of the type, in one line.
func lineOf(blockType string) string {
	return cmp.Or(map[string]string{
		"use":      `use "kubernetes" {}`,
		"match":    `match { name = "eth*" }`,
		"module":   `module "br_netfilter" {}`,
		"sysctl":   `sysctl "net.ipv4.ip_forward" { value = 1 }`,
		"sysctls":  `sysctls { values = { "net.ipv4.ip_forward" = 1 } }`,
		"sysfs":    `sysfs "/sys/kernel/mm/transparent_hugepage/enabled" { value = "madvise" }`,
		"link":     `link "uplink" { ... }, with match { name = "eth0" } in it`,
		"check":    `check "swap" {}`,
		"probe":    `probe "bridge" {}`,
		"gate":     `gate { budget = "2m" }`,
		"variable": `variable "name" { default = 1 }`,
		"override": `override "sysctl.net.ipv4.ip_forward" { when = false }`,
	}[blockType], blockType+" {}")
}

// insteadOf returns the line for a word of other tools, or "". The owner is the type of the block that has the word, "" for the file.
func insteadOf(owner, name string) string {
	const program = `check "exec.NAME" { command = ["/usr/bin/systemctl", "is-active", "X.service"] } ` +
		"(a policy sets no services, packages or files)"
	const off = "when = false; for a built-in requirement, override \"CHECK\" { when = false }"
	words := map[string]string{
		"include": lineOf("use"), "import": lineOf("use"), "extends": lineOf("use"), "policy": lineOf("use"),
		"service": program, "unit": program, "package": program, "file": program, "exec": program, "command": program,
		"swap": lineOf("check"), "ethtool": lineOf("link"), "offload": lineOf("link"), "interface": lineOf("link"),
		"modules": lineOf("module"), "kernel_modules": lineOf("module"), "kernel_module": lineOf("module"),
		"modprobe": lineOf("module"),
		"locals":   lineOf("variable"), "variables": lineOf("variable"), "blacklist": `module "NAME" { absent = true }`,
		"nodegate": "its blocks at the top level of the file", "acknowledge": `lint { allow = ["RULE:NAME"] }`,
	}
	switch {
	case owner == "gate":
		words = map[string]string{"timeout": `budget = "2m"`, "enabled": `enforce = "warn" (only report)`,
			"mode": `enforce = "warn" (only report)`,
			"fail": `on_timeout = "hold"`, "service": `unit = "kubelet.service"`}
	case owner == "audit":
		words = map[string]string{"interval": `every = "1m"`, "timeout": `settle = "15s"`}
	case owner == "link" && (name == "name" || name == "kind" || name == "driver"):
		return fmt.Sprintf(`match { %s = ... }`, name)
	case owner == "link" && slices.Contains(knownOffloads(), name):
		return fmt.Sprintf("offload = { %s = false }", name)
	case owner != "":
		words = map[string]string{
			"if":        "when = CONDITION",
			"condition": "when = CONDITION", "only_if": "when = CONDITION", "unless": "when = !CONDITION",
			"enabled": off, "disabled": off, "description": `reason = "..."`, "message": `reason = "..."`,
			"name": fmt.Sprintf("the name after the type: %s \"NAME\" { ... }", owner), "minimum": "min = NUMBER", "maximum": "max = NUMBER",
			"values":   "value = ..., or one_of = [...] for several that are right",
			"for_each": "one block for each name; sysctls { values = { ... } } takes many",
			"count":    "when = false for count = 0; remove any other", "level": `severity = "warn"`, "args": `command = ["/PROGRAM", "ARGUMENT"]`,
		}
		if owner == "module" {
			words["state"], words["ensure"], words["blacklist"] = "absent = true", "absent = true", "absent = true"
			words["hashsize"], words["params"] = "options = { hashsize = 65536 }", "options = { NAME = VALUE }"
		}
	}
	return words[name]
}

// mendSyntax replaces HCL's message about a line that is written in another language by the same line in this one. It keeps
// one message for each line.
func mendSyntax(text []byte, diags hcl.Diagnostics) hcl.Diagnostics {
	lines := strings.Split(string(text), "\n")
	last := 0
	return slices.DeleteFunc(diags, func(d *hcl.Diagnostic) bool {
		if d.Subject == nil || d.Subject.Start.Line > len(lines) {
			return false
		}
		n := d.Subject.Start.Line
		same := n == last
		last = n
		if line := lineInstead(strings.TrimRight(lines[n-1], " \t\r"), d.Summary); line != "" {
			d.Detail = line
		}
		return same
	})
}

// lineInstead returns the remedy for a line that HCL cannot read, or "".
func lineInstead(line, summary string) string {
	find := func(expression string) []string { return regexp.MustCompile(expression).FindStringSubmatch(line) }
	quotes := strings.Contains(line, "'") && (summary == "Invalid character" || find(`^\s*[a-z]+ '`) != nil)
	if quotes {
		return "Write: " + strings.ReplaceAll(strings.TrimSpace(line), "'", `"`)
	}
	if write := settingInstead(find); write != "" {
		return "Write: " + write
	}
	if write := headerInstead(find); write != "" {
		return "Write: " + write
	}
	switch summary {
	case "Invalid single-argument block definition":
		if m := find(`\b(and|or|not)\b`); m != nil {
			return fmt.Sprintf("Conditions are joined by && and ||, and negated by !. Write %s instead of %s.",
				map[string]string{"and": "&&", "or": "||", "not": "!"}[m[1]], m[1])
		}
		return "Only one attribute fits on the line of its block. Write each attribute on a line of its own, and } on the last."
	case "Invalid multi-line string", "Invalid string literal":
		return `Close the quotes: a string begins and ends with " on one line.`
	}
	if m := find(`^\s+(\w+)\s*:\s*(\S.*)$`); m != nil {
		return fmt.Sprintf("Write: %s = %s", m[1], m[2])
	}
	if find(`^\s*\{`) != nil {
		return "This is JSON: name the file *.hcl.json, or write HCL: " + lineOf("module")
	}
	if find(`^---|^\s*- |^\s*[\w.-]+\s*:`) != nil {
		return "This is YAML; a policy is HCL. Write: " + lineOf("module") + ", " + lineOf("sysctl") + ", " + lineOf("gate")
	}
	return ""
}

// settingInstead returns the block for a line of sysctl.conf, of modules-load.d or of a shell, or "".
func settingInstead(find func(string) []string) string {
	sysctl := func(key, value string) string {
		return fmt.Sprintf("sysctl %q { value = %s }", strings.ReplaceAll(key, "/", "."), literal(strings.Trim(value, `"'`)))
	}
	if m := find(`("?[\w./*-]+"?)\s*=\s*\$\{\s*((?:var|local|node|kernel|os)\.[^{}"]*?)\s*\}`); m != nil {
		return m[1] + " = " + m[2]
	}
	if find(`"[^"]*"\s*=\s*(?:"[^"]*"|[^\s,{"]+)\s+"[^"]*"\s*=`) != nil {
		return "each entry on a line of its own"
	}
	if m := find(`^\s*-?"?([a-z]\w*(?:[./][\w*-]+)+)"?\s*[=:]\s*(\S.*)$`); m != nil {
		return sysctl(m[1], m[2]) + " (`nodegate policy import FILE` converts a sysctl.conf)"
	}
	if m := find(`^\s*sysctl\s+(?:-w\s+)?"?([\w./*-]+)"?\s*=\s*"?([^"{]+)"?$`); m != nil {
		return sysctl(m[1], m[2])
	}
	if m := find(`^\s*sysctls\s*\{\s*("[\w./*-]+")\s*=\s*([^}]*?)\s*\}?$`); m != nil {
		return fmt.Sprintf("sysctls { values = { %s = %s } }", m[1], m[2])
	}
	if m := find(`^\s*(?:modprobe|insmod)\s+"?([\w-]+)"?$`); m != nil {
		return fmt.Sprintf("module %q {}", m[1])
	}
	if m := find(`^\s*modules?\s*=?\s*\[\s*"?([\w-]+)`); m != nil {
		return fmt.Sprintf("module %q {}, and one such block for each other module", m[1])
	}
	return ""
}

// headerInstead returns the first line of a block whose name lacks quotes, or which lacks braces, or "".
func headerInstead(find func(string) []string) string {
	types := strings.Join(blockTypes(), "|")
	if m := find(`^\s*(` + types + `)\s+("[^"]*")(?:\s*=\s*\{.*)?$`); m != nil {
		if slices.Contains([]string{"sysctl", "sysfs", "link"}, m[1]) {
			return m[1] + " " + m[2] + " { ... }"
		}
		return m[1] + " " + m[2] + " {}"
	}
	if m := find(`^\s*(` + types + `)\s+([\w./*-]+)\s*(\{.*)?$`); m != nil {
		return fmt.Sprintf("%s %q %s", m[1], m[2], cmp.Or(strings.TrimSpace(m[3]), "{}"))
	}
	return ""
}

// blockTypes returns the types of the blocks of a file.
func blockTypes() (types []string) {
	for _, b := range fileSchema().Blocks {
		types = append(types, b.Type)
	}
	return types
}

// inQuotes returns the remedy for a value that should be a string. The suffix completes a number.
func inQuotes(e hcl.Expression, suffix string) string {
	switch e := e.(type) {
	case *hclsyntax.LiteralValueExpr:
		if e.Val.Type() == cty.Number {
			return fmt.Sprintf("Write %q.", e.Val.AsBigFloat().Text('f', -1)+suffix)
		}
	case *hclsyntax.TupleConsExpr:
		return "Write one string, without brackets."
	}
	return "Write it in quotes."
}

// bytesOf explains a size such as 16M or 1 GiB.
func bytesOf(size string) string {
	m := regexp.MustCompile(`^\s*(\d{1,6})\s*([KMGkmg])i?[Bb]?$`).FindStringSubmatch(size)
	if m == nil {
		return ""
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	return fmt.Sprintf(" %s is %d bytes.", size, n<<map[string]int{"K": 10, "M": 20, "G": 30}[strings.ToUpper(m[2])])
}
