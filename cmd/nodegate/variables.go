package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"nodegate/internal/host"
	"nodegate/policy"
)

// environment is the values that NODEGATE_VAR_name variables give.
func environment() map[string]string {
	vars := map[string]string{}
	for _, e := range os.Environ() {
		if rest, ok := strings.CutPrefix(e, "NODEGATE_VAR_"); ok {
			name, value, _ := strings.Cut(rest, "=")
			vars[name] = value
		}
	}
	return vars
}

// variables is the values of files, then those of --var; the later one counts.
func (o *options) variables() (map[string]string, error) {
	vars := map[string]string{}
	for _, file := range o.varFiles {
		if err := readVariables(file, vars); err != nil {
			return nil, err
		}
	}
	for _, v := range o.vars {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--var is NAME=VALUE; %q is not", v)
		}
		vars[name] = value
	}
	return vars, nil
}

// readVariables reads NAME = VALUE lines, HCL attributes. A value is kept as it
// is written, for the variable's own type to read.
func readVariables(file string, vars map[string]string) error {
	files, err := policy.ReadFiles([]string{file}, host.ReadFile)
	if err != nil {
		return err
	}
	for _, f := range files {
		parsed, diags := hclsyntax.ParseConfig(f.Text, f.Name, hcl.InitialPos)
		attrs := hcl.Attributes{}
		if !diags.HasErrors() {
			attrs, diags = parsed.Body.JustAttributes()
		}
		if err := printDiagnostics(os.Stderr, files, diags); err != nil {
			return err
		}
		for name, a := range attrs {
			text := strings.TrimSpace(string(a.Expr.Range().SliceBytes(f.Text)))
			vars[name] = strings.TrimSuffix(strings.TrimPrefix(text, `"`), `"`)
		}
	}
	return nil
}
