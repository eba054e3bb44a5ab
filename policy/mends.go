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

	"nodegate/internal/ethtool"
)

// The line to write instead of a mistake that HCL's own messages only name.

// mendUnknown rewrites HCL's messages about unknown blocks and attributes: they list the known ones, and give the line to write. The
// owner is the block's type, "" for the file, and label its name.
func mendUnknown(diags hcl.Diagnostics, owner, label string, s *hcl.BodySchema, text []byte) hcl.Diagnostics {
	var attributes, blocks []string
	for _, a := range s.Attributes {
		attributes = append(attributes, a.Name)
	}
	for _, b := range s.Blocks {
		blocks = append(blocks, b.Type)
	}
	for _, d := range diags {
		rest := "" // the text from the subject on
		if d.Subject != nil {
			rest = string(text[min(d.Subject.Start.Byte, len(text)):])
		}
		if own := mendBy(blockMends(), d.Summary+d.Detail, owner+" "+rest); own != "" {
			d.Detail = own
			continue
		}
		_, name, _ := strings.Cut(d.Detail, `"`)
		name, _, quoted := strings.Cut(name, `"`)
		known := slices.Concat(attributes, blocks)
		switch {
		case mendLabel(d), !quoted:
			continue
		case d.Summary == "Unsupported argument" && slices.Contains(blocks, name):
			d.Detail = fmt.Sprintf("%s is a block, without =. Write: %s", name, LineOf(name))
			continue
		case d.Summary == "Unsupported block type" && slices.Contains(attributes, name):
			d.Detail = fmt.Sprintf("%s is an attribute: put = before {. Write: %[1]s = { ... }", name)
			continue
		case d.Summary != "Unsupported argument" && d.Summary != "Unsupported block type":
			continue
		case len(known) == 0:
			d.Detail = fmt.Sprintf("A %s block has nothing in its braces. Write: %[1]s %q {}", owner, label)
			continue
		}
		hint := DidYouMean(name, known)
		_, value, _ := strings.Cut(strings.SplitN(rest, "\n", 2)[0], "=")
		if write := insteadOf(owner, label, name, strings.Trim(value, " \t\r}")); write != "" {
			hint = " Write: " + write + "."
		}
		where := map[bool]string{true: "a policy", false: owner}[owner == ""]
		d.Detail = fmt.Sprintf("%s has no %q.%s It has %s.", where, name, hint, strings.Join(known, ", "))
	}
	return diags
}

// blockMends returns what a message contains, an expression for the type of the block and the text from there on, and the remedy.
func blockMends() [][3]string {
	return [][3]string{
		{"", `^\w+ count\s*=\s*[^0\s].*`, "A block is there once. Remove the line."},
		{"", `^\w+ (?:enabled\s*=\s*true|disabled\s*=\s*false)\b`, "A block applies unless when is false. Remove the line."},
		{"", `^ (?:unit|service)\s+"(kubelet|k3s(?:-agent)?|rke2-(?:server|agent)|k0s\w+)[".]`,
			`The gate holds kubelet's unit. Write: gate { unit = "$1.service" }`},
		{"", `^ (?:unit|service)\s+"([\w-]+)`, `Write: check "exec.$1" { command = ["/usr/bin/systemctl", "is-active", "$1.service"] }`},
		{"", `^ (?:resource|data)\s+"(module|sysctl|sysfs|link|check|probe|variable)"\s+("[^"]*")\s*\{.*`, "Write: $1 $2 {"},
		{"", `^link match\s*=\s*(\{[^{}\n]*\}|\{).*`, "match is a block, without =. Write: match $1"},
		{"Missing name for sysctl", `^ \{\s*(?:key|name)\s*=\s*("[^"\n]*")`, "Write: sysctl $1 {"},
		{`one or more "sysctl" blocks`, `^ (-?\d+|"[^"\n]*")`, `Write: { "value": $1 }`},
	}
}

// mendBy returns the remedy of the first mend for a message and a text, or "".
func mendBy(mends [][3]string, message, text string) string {
	for _, m := range mends {
		if !strings.Contains(message, m[0]) {
			continue
		}
		expression := regexp.MustCompile(m[1])
		if at := expression.FindStringSubmatchIndex(text); at != nil {
			return string(expression.ExpandString(nil, m[2], text, at))
		}
	}
	return ""
}

// mendLabel rewrites a message about a block without a name, or with one too many.
func mendLabel(d *hcl.Diagnostic) bool {
	m := regexp.MustCompile(`^(?:Missing \w+|Extraneous label) for (\w+)$`).FindStringSubmatch(d.Summary)
	if m == nil {
		return false
	}
	d.Detail = "Write one name, in quotes, before {: " + LineOf(m[1])
	if isNameless(m[1]) {
		d.Detail = fmt.Sprintf("A %s block has no name. Write: %[1]s {", m[1])
	}
	return true
}

// LineOf returns a block of the type, in one line.
func LineOf(blockType string) string {
	return cmp.Or(map[string]string{
		"use": `use "kubernetes" {}`, "match": `match { name = "eth*" }`, "module": `module "br_netfilter" {}`,
		"sysctl": `sysctl "net.ipv4.ip_forward" { value = 1 }`, "sysctls": `sysctls { values = { "net.ipv4.ip_forward" = 1 } }`,
		"sysfs": `sysfs "/sys/kernel/mm/transparent_hugepage/enabled" { value = "madvise" }`,
		"link":  `link "uplink" { ... }, with match { name = "eth0" } in it`, "check": `check "swap" {}`, "probe": `probe "bridge" {}`,
		"gate": `gate { budget = "2m" }`, "variable": `variable "name" { default = 1 }`,
		"override": `override "sysctl.net.ipv4.ip_forward" { when = false }`,
	}[blockType], blockType+" {}")
}

// insteadOf returns the line for a word of other tools, or "". The owner is the type of the block that has the word, "" for the file, and
// label the block's name. The value is the one that the author wrote, if it is known.
func insteadOf(owner, label, name, value string) string {
	const program = `check "exec.NAME" { command = ["/usr/bin/systemctl", "is-active", "X.service"] } ` +
		"(a policy sets no services, packages or files)"
	off := fmt.Sprintf("when = false; for a built-in requirement, override %q { when = false }", Stanza{Type: owner, Name: label}.CheckName())
	words := map[string]string{
		"include": LineOf("use"), "import": LineOf("use"), "extends": LineOf("use"), "policy": LineOf("use"),
		"service": program, "unit": program, "package": program, "file": program, "exec": program, "command": program,
		"swap": LineOf("check"), "ethtool": LineOf("link"), "offload": LineOf("link"), "interface": LineOf("link"),
		"modules": LineOf("module"), "kernel_modules": LineOf("module"), "kernel_module": LineOf("module"), "modprobe": LineOf("module"),
		"locals": LineOf("variable"), "variables": LineOf("variable"), "blacklist": `module "NAME" { absent = true }`,
		"kubelet":   `gate { unit = "kubelet.service" }`,
		"terraform": `required_version = ">= 0.1", at the top level of the file`,
		"nodegate":  "its blocks at the top level of the file", "acknowledge": `lint { allow = ["RULE:NAME"] }`,
	}
	switch {
	case owner == "gate":
		words = map[string]string{"timeout": `budget = "2m"`, "enabled": `enforce = "warn" (only report)`,
			"mode": `enforce = "warn" (only report)`, "severity": `enforce = "warn" (only report)`,
			"fail": `on_timeout = "hold"`, "service": `unit = "kubelet.service"`}
	case owner == "audit":
		words = map[string]string{"interval": `every = "1m"`, "timeout": `settle = "15s"`}
	case owner == "link" && (name == "name" || name == "kind" || name == "driver"):
		return fmt.Sprintf(`match { %s = ... }`, name)
	case owner == "link" && settingInstead(name, value) != "":
		return settingInstead(name, value)
	case owner != "":
		words = map[string]string{
			"if": "when = CONDITION", "condition": "when = CONDITION", "only_if": "when = CONDITION", "unless": "when = !CONDITION",
			"enabled": off, "disabled": off, "description": `reason = "..."`, "message": `reason = "..."`,
			"name": fmt.Sprintf("the name after the type: %s \"NAME\" { ... }", owner), "minimum": "min = NUMBER", "maximum": "max = NUMBER",
			"values":   "value = ..., or one_of = [...] for several that are right",
			"for_each": "one block for each name; sysctls { values = { ... } } takes many",
			"count":    "when = false for count = 0; remove any other", "level": `severity = "warn"`, "args": `command = ["/PROGRAM", "ARGUMENT"]`,
		}
		if owner == "module" {
			loaded := fmt.Sprintf("module %q {}", label)
			either := loaded + " to load it, or absent = true in it to forbid it"
			words["state"], words["ensure"], words["blacklist"] = either, either, "absent = true"
			words["load"], words["persistent"] = loaded, loaded
			words["hashsize"], words["params"] = "options = { hashsize = 65536 }", "options = { NAME = VALUE }"
		}
	}
	return words[name]
}

// settingInstead returns the map for a word of ethtool(8), or "". Some words are features and also numbers, such as rx.
func settingInstead(name, value string) string {
	number := strings.Trim(value, `"`)
	if _, err := strconv.Atoi(number); err != nil && slices.Contains(KnownOffloads(), name) {
		return fmt.Sprintf("offload = { %s = false }", name)
	}
	for _, kind := range slices.Backward(ethtool.Kinds()) { // of rings and channels with one name, rings are meant
		if slices.Contains(kind.Numbers, name) {
			return fmt.Sprintf("%s = { %s = %s }", kind.Name, name, cmp.Or(number, "NUMBER"))
		}
	}
	return ""
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
		if d.Summary == "Unterminated template string" && strings.Contains(string(text), "<<") { // HCL names the end of the file
			for ; !strings.Contains(lines[n-1], "<<"); n-- {
			}
			d.Subject.Start.Line, d.Subject.Start.Column = n, strings.Index(lines[n-1], "<<")+1
		}
		same := n == last
		last = n
		owner := ""
		for _, line := range lines[:n] {
			owner = cmp.Or(regexp.MustCompile(`^[a-z]+\b`).FindString(line), owner)
		}
		line := strings.TrimRight(lines[n-1], " \t\r")
		write := lineInstead(line, d.Summary+" in "+owner)
		repeats := strings.Contains(write, "Write: ")
		if write != "" && d.Summary != "Attribute redefined" && (!repeats || !mayHoldSecret(lines[:n])) {
			d.Detail = write
		}
		return same
	})
}

// lineMends returns what HCL's summary and the type of the block contain, an expression for a line that HCL cannot read, and the remedy.
func lineMends() [][3]string {
	types := strings.Join(blockTypes(), "|")
	return [][3]string{
		{"", `^\s*when\s*\{\s*(.+?)\s*\}$`, "Write: when = $1"},
		{"", `^\s*if\s+(.+?)\s*\{$`, "Each block has its own condition. Write in it: when = $1"},
		{"Missing newline", `^\s*(\w+\s*=)\s*if\s+(.+?)\s+then\s+(.+?)\s+else\s+(.+)$`, "Write: $1 $2 ? $3 : $4"},
		{"", `^\s*(.*=\s*)([\w.]+)\s+in\s+(\[[^\]]*\])(.*)$`, "Write: ${1}contains($3, $2)$4"},
		{"Missing newline", `^\s*(.*[<>=]\s*)(\d+)\s*Gi?B?\b(.*)$`, "Write: $1$2 * 1024 * 1024 * 1024$3"},
		{"Invalid single-argument", `^\s*(\w+(?:\s+"[^"]*")?\s*\{\s*\w+\s*=\s*[^={},]+?)$`, "Write: $1 }"},
		{"", `\{\{|\{%`, "This is a template. Render it first, or write var.NAME for a value."},
		{"", `("?[\w./*-]+"?)\s*=\s*\$\{\s*((?:var|local|node|kernel|os)\.[^{}"]*?)\s*\}`, "Write: $1 = $2"},
		{"", `"[^"]*"\s*=\s*(?:"[^"]*"|[^\s,{"]+)\s+"[^"]*"\s*=`, "Write: each entry on a line of its own"},
		{" in sysctls", `^\s+"?([a-z]\w*(?:[./][\w*-]+)+)"?\s*[=:]\s*([^,]*[^,\s])`, `Write: values = { "$1" = $2 }`},
		{"", `^\s*sysctls\s*\{\s*("[\w./*-]+")\s*=\s*([^}]*?)\s*\}?$`, "Write: sysctls { values = { $1 = $2 } }"},
		{"", `^\s*(?:modprobe|insmod)\s+"?([\w-]+)"?$`, `Write: module "$1" {}`},
		{"", `^\s*(?:use|include|import)\s+"(?:\./)?([\w.-]+\.hcl)"$`, `Write: use "./$1" {}`},
		{"", `^\s*(module|use|check|probe)s?\s*(?:=?\s*\[\s*"?([\w./-]+)|"([\w./-]+)"\s*,)`,
			`Write: $1 "$2$3" {}, and one such block for each other name`},
		{"", `^\s*(sysctl|sysfs|link)\s+("[^"]*")(?:\s*=\s*\{.*)?$`, "Write: $1 $2 { ... }"},
		{"", `^\s*(` + types + `)\s+("[^"]*")(?:\s*=\s*\{.*)?$`, "Write: $1 $2 {}"},
		{"", `^\s*(` + types + `)\s+([\w./*-]+)\s*(\{.*)$`, `Write: $1 "$2" $3`},
		{"", `^\s*(` + types + `)\s+([\w./*-]+)$`, `Write: $1 "$2" {}`},
		{"", `^\s*(?:--|;)\s*([^-].*)$`, "A comment begins with #. Write: # $1"},
		{"Argument or block", `^\s*(/\*[^/]*)$`, "Write: $1 */"},
		{"Invalid character", `^\s*([^;]*[^;\s])\s*;$`, "Write: $1"},
		{"Invalid character", `^\s*([^;]*[^;\s])\s*;\s*([^=;]+)$`, "A comment begins with #. Write: $1 # $2"},
		{"Invalid character", `^\s*([\w-]+)\s*=\s*\$([A-Za-z_]\w*)$`, "Write: $1 = var.$2"},
		{"Argument or block", `^\s*([\w-]+)\s*==\s*(.+)$`, "Write: $1 = $2"},
		{"Missing newline", `^\s*(when\s*=.*[\w"')\]])\s*=\s*([^=\s].*)$`, "Write: $1 == $2"},
		{"Missing newline", `^\s*(\w+\s*=)\s*(.+?)\s+if\s+(.+)\s+else\s+(.+)$`, "Write: $1 $3 ? $2 : $4"},
		{"Missing newline", `^\s*(\w+\s*=\s*"[^"\\]*)"(\w[^"\\]*)"([^"\\]*")$`, `Write: $1\"$2\"$3`},
		{"Missing newline", `^\s*\}\s*\}$`, "Remove one }."},
		{"Unterminated", `<<-?\s*"?(\w+)`, "End the text by a line that has only $1."},
		{" string", "", `Close the quotes: a string begins and ends with " on one line.`},
		{"Invalid single-argument", "",
			"Only one attribute fits on the line of its block. Write each attribute on a line of its own, and } on the last."},
		{"", `^\s+(\w+)\s*:\s*(\S.*)$`, "Write: $1 = $2"},
		{"", `^\s*\{`, "This is JSON; a policy is HCL. Write: " + LineOf("module")},
		{"", `^---|^\s*- |^\s*[\w.-]+\s*:`,
			"This is YAML; a policy is HCL. Write: " + LineOf("module") + ", " + LineOf("sysctl") + ", " + LineOf("gate")},
	}
}

// lineInstead returns the remedy for a line that HCL cannot read, or "". The context is HCL's summary and the type of the block.
func lineInstead(line, context string) string {
	find := func(expression string) []string { return regexp.MustCompile(expression).FindStringSubmatch(line) }
	quotes := strings.Contains(line, "'") && (strings.Contains(context, "Invalid character") || find(`^\s*[a-z]+ '`) != nil)
	if quotes {
		line = strings.ReplaceAll(strings.TrimSpace(line), "'", `"`)
		return "Write: " + regexp.MustCompile(`^(\w+)\s*:\s+`).ReplaceAllString(line, "$1 = ")
	}
	sysctl := func(key, value string) string {
		return fmt.Sprintf("Write: sysctl %q { value = %s }", strings.ReplaceAll(key, "/", "."), Literal(strings.Trim(value, `"'`)))
	}
	if !strings.HasSuffix(context, " in sysctls") {
		if m := find(`^\s*-?"?([a-z]\w*(?:[./][\w*-]+)+)"?\s*[=:]\s*([^\s$=].*)$`); m != nil {
			return sysctl(m[1], m[2]) + " (`nodegate policy import FILE` converts a sysctl.conf)"
		}
	}
	if m := find(`^\s*sysctl\s+(?:-w\s+)?"?([\w./*-]+)"?\s*=\s*"?([^"{]+)"?$`); m != nil {
		return sysctl(m[1], m[2])
	}
	if find(`^\[[A-Z]\w*\]$`) != nil {
		return "This is a unit of systemd; a policy is HCL. Write: " + LineOf("module") + ", " + LineOf("sysctl")
	}
	if m := find(`^\[+"?([a-z]+)`); m != nil {
		return "This is TOML or INI; a policy is HCL. Write: " + LineOf(m[1])
	}
	if m := find(`^\s*(budget|interval|every|settle|timeout)\s*=\s*(\d+(?:ms|s|m|h))$`); m != nil {
		return fmt.Sprintf("Write: %s = %q", m[1], m[2])
	}
	if m := find(`^\s*(\w+)\s*=\s*(\d\w+)$`); m != nil && BytesOf(m[2], IfCounted) != "" {
		return strings.TrimSpace(BytesOf(m[2], IfCounted))
	} else if m != nil {
		if n, err := strconv.ParseInt(m[2], 0, 64); err == nil {
			return fmt.Sprintf("Write: %s = %d", m[1], n)
		}
	}
	if said := withOperators(line); said != line && find(`(?:=|\{).*\b(?:and|or|not)\b`) != nil {
		return "Conditions have && for and, || for or, ! for not. Write: " + strings.TrimSpace(said)
	}
	return mendBy(lineMends(), context, line)
}

// withOperators returns a line with the operators of HCL for the words and, or, not outside quotes.
func withOperators(line string) string {
	parts := strings.Split(line, `"`)
	for i := 0; i < len(parts); i += 2 {
		parts[i] = regexp.MustCompile(`\bnot\s+`).ReplaceAllString(parts[i], "!")
		parts[i] = strings.NewReplacer(" and ", " && ", " or ", " || ").Replace(parts[i])
	}
	return strings.Join(parts, `"`)
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
			return fmt.Sprintf("Write %q.", NumberText(e, e.Val)+suffix)
		}
	case *hclsyntax.TupleConsExpr:
		return "Write one string, without brackets."
	}
	return "Write it in quotes."
}

// NumberText returns a number as the author wrote it. HCL drops the final zeros of 5.10, and keeps the width.
func NumberText(e hcl.Expression, v cty.Value) string {
	text := v.AsBigFloat().Text('f', -1)
	if _, is := e.(*hclsyntax.LiteralValueExpr); is {
		whole, _, _ := strings.Cut(text, ".")
		text = v.AsBigFloat().Text('f', max(-1, e.Range().End.Byte-e.Range().Start.Byte-len(whole)-1))
	}
	return text
}

// IfCounted restricts a number to the parameters for which it is right; some count pages.
const IfCounted = ", if it counts bytes or entries"

// BytesOf returns the number to write for a size such as 16M or 1 GiB, and a condition.
func BytesOf(size, condition string) string {
	m := regexp.MustCompile(`^\s*(\d{1,6})\s*([KMGkmg])i?[Bb]?$`).FindStringSubmatch(size)
	if m == nil {
		return ""
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	return fmt.Sprintf(" Write %d%s.", n<<map[string]int{"K": 10, "M": 20, "G": 30}[strings.ToUpper(m[2])], condition)
}
