package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// factTypes returns the facts about the node that an expression can use, with their types.
func factTypes() map[string]cty.Type {
	return map[string]cty.Type{
		"node.cpus":       cty.Number, // CPUs that the kernel schedules on
		"node.memory":     cty.Number, // bytes
		"kernel.release":  cty.String, // uname -r: 6.1.0-28-cloud-amd64
		"kernel.version":  cty.String, // its leading numbers: 6.1.0
		"os.id":           cty.String, // ID of os-release: debian
		"os.version":      cty.String, // VERSION_ID of os-release: 12
		"systemd.version": cty.Number, // 252
		"cloud.provider":  cty.String, // from DMI: aws, gcp, azure, openstack, hetzner, ...; "" elsewhere
		"cni.name":        cty.String, // name in the first file of /etc/cni/net.d
		"kube_proxy.mode": cty.String, // iptables, nftables, ipvs
		"kubelet.version": cty.String, // 1.34.1
	}
}

// FactNames returns every fact, sorted.
func FactNames() []string { return slices.Sorted(maps.Keys(factTypes())) }

// GivenFacts reads facts that are written as NAME=VALUE. It returns nil for none.
func GivenFacts(given []string) (func(name string) (any, bool), error) {
	if given == nil {
		return nil, nil
	}
	facts := map[string]any{}
	for _, text := range given {
		name, value, _ := strings.Cut(text, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		switch typ, known := factTypes()[name]; {
		case !known:
			return nil, fmt.Errorf("unknown fact %q; known facts: %s", name, strings.Join(FactNames(), ", "))
		case typ == cty.String:
			facts[name] = value
		case err != nil:
			return nil, fmt.Errorf("the fact %s must be a whole number: %s=8; got %q", name, name, value)
		default:
			facts[name] = n
		}
	}
	if release, is := facts["kernel.release"].(string); is {
		facts["kernel.version"] = leadingVersion(release)
	}
	return func(name string) (any, bool) { v, known := facts[name]; return v, known }, nil
}

// vocabulary holds the functions and facts that an expression can name. Building it costs more than evaluating an expression,
// so all nodes of one policy share it.
type vocabulary struct {
	plain, withFacts map[string]function.Function // for expressions without and with facts
	facts            map[string]cty.Type
	named            map[hcl.Expression][]string // only for Unmerged: the facts of expressions that were evaluated before
}

func newVocabulary() *vocabulary {
	return &vocabulary{plain: functions(false), withFacts: functions(true), facts: factTypes()}
}

// scopeFor returns the functions, variables and facts for one expression. It contains only the facts that the expression names, because
// reading each costs time. unknown explains why the expression may lack a value: its unknown facts, or else its invalid variables, or else
// all its facts.
func (r *reader) scopeFor(e hcl.Expression) (scope *hcl.EvalContext, unknown []string, ok bool) {
	if isLiteral(e) {
		return nil, nil, true
	}
	if named := r.words.named[e]; r.paid && named != nil {
		unknown = slices.DeleteFunc(slices.Clone(named), func(name string) bool { _, known := r.Fact(name); return known })
		if len(unknown) == 0 {
			unknown = named
		}
		return r.sharedScope(named), unknown, true
	}
	scope = &hcl.EvalContext{Functions: r.words.plain}
	if !r.affordable(e) {
		return scope, nil, false
	}
	named := e.Variables()
	if len(named) == 0 {
		return scope, nil, true
	}
	facts := map[string]map[string]cty.Value{}
	var wrong, all []string
	ok = true
	for _, t := range named {
		name := FactOf(t)
		root, attr, _ := strings.Cut(name, ".")
		if root == "var" {
			v, declared := r.vars[attr]
			if declared && !v.IsKnown() {
				wrong = append(wrong, name)
			}
			if !declared {
				r.errorf(t.SourceRange(), "Unknown variable", "There is no variable %[1]q; declare it: variable %[1]q { default = VALUE }.%[2]s",
					attr, DidYouMean(attr, slices.Sorted(maps.Keys(r.vars))))
				ok = false
			}
			continue
		}
		typ, known := r.words.facts[name]
		if !known && attr == "" {
			instead := fmt.Sprintf("If it is a string, put it in quotes: %q.", root)
			with := slices.DeleteFunc(FactNames(), func(fact string) bool { return !slices.Contains(strings.Split(fact, "."), root) })
			if len(with) > 0 {
				instead = "Write " + strings.Join(with, " or ") + "."
			}
			if _, declared := r.vars[root]; declared {
				instead = fmt.Sprintf("Write var.%s.", root)
			} else if word := strings.ToLower(root); word == "yes" || word == "on" || word == "no" || word == "off" {
				instead = fmt.Sprintf("Write %t.", word == "yes" || word == "on")
			}
			r.errorf(t.SourceRange(), "Unknown fact", "There is no fact %s. %s Known facts: %s.", root, instead, strings.Join(FactNames(), ", "))
			ok = false
			continue
		}
		if !known && slices.Contains([]string{"env", "local", "vars"}, root) {
			r.errorf(t.SourceRange(), "Unknown fact", "There is no %[1]s. Write var.%[2]s, and declare it: variable %[2]q { default = VALUE }. "+
				"NODEGATE_VAR_%[2]s in the environment sets it.", name, attr)
			ok = false
			continue
		}
		if !known {
			meant := map[string]string{"node.os": "os.id", "node.distribution": "os.id", "os.name": "os.id", "os.family": "os.id"}[name]
			r.errorf(t.SourceRange(), "Unknown fact", "There is no fact %s. Known facts: %s.%s",
				name, strings.Join(FactNames(), ", "), DidYouMean(cmp.Or(meant, name), FactNames()))
			ok = false
			continue
		}
		all = append(all, name)
		v := r.factValue(name, typ)
		if !v.IsKnown() {
			unknown = append(unknown, name)
		}
		if facts[root] == nil {
			facts[root] = map[string]cty.Value{}
		}
		facts[root][attr] = v
	}
	if len(all) > 0 {
		scope.Functions = r.words.withFacts
	}
	scope.Variables = map[string]cty.Value{"var": cty.ObjectVal(r.vars)}
	for root, attrs := range facts {
		scope.Variables[root] = cty.ObjectVal(attrs)
	}
	if _, native := e.(hclsyntax.Expression); native && ok && r.words.named != nil && len(all) > 0 && len(wrong) == 0 {
		r.words.named[e] = all
	}
	for _, others := range [][]string{wrong, all} {
		if len(unknown) == 0 {
			unknown = others
		}
	}
	return scope, unknown, ok
}

// sharedScope returns the functions, the variables and the named facts of a node, and other facts: all expressions share it.
func (r *reader) sharedScope(named []string) *hcl.EvalContext {
	if r.scope == nil {
		r.scope = &hcl.EvalContext{Functions: r.words.withFacts, Variables: map[string]cty.Value{"var": cty.ObjectVal(r.vars)}}
	}
	for _, name := range named {
		root, _, _ := strings.Cut(name, ".")
		if _, built := r.scope.Variables[root]; built {
			continue
		}
		attrs := map[string]cty.Value{}
		for other, typ := range r.words.facts {
			if attr, is := strings.CutPrefix(other, root+"."); is {
				attrs[attr] = r.factValue(other, typ)
			}
		}
		r.scope.Variables[root] = cty.ObjectVal(attrs)
	}
	return r.scope
}

// isLiteral reports whether an expression is a literal, as most expressions of a policy are.
func isLiteral(e hcl.Expression) bool {
	switch e := e.(type) {
	case *hclsyntax.LiteralValueExpr:
		return true
	case *hclsyntax.TemplateExpr:
		return e.IsStringLiteral()
	}
	return false
}

func (r *reader) factValue(name string, typ cty.Type) cty.Value {
	if r.Fact == nil {
		return cty.UnknownVal(typ)
	}
	switch v, known := r.Fact(name); v := v.(type) {
	case string:
		if known && typ == cty.String {
			return cty.StringVal(v)
		}
	case int64:
		if known && typ == cty.Number {
			return cty.NumberIntVal(v)
		}
	}
	return cty.UnknownVal(typ)
}

// FactOf returns the name of the fact or variable that a traversal reads: "kernel.version", "var.name".
func FactOf(t hcl.Traversal) string {
	if len(t) > 1 {
		if a, is := t[1].(hcl.TraverseAttr); is {
			return t.RootName() + "." + a.Name
		}
	}
	return t.RootName() + "."
}

// leadingVersion returns the fact kernel.version of a release: 6.1.0 of 6.1.0-28-amd64.
func leadingVersion(release string) string {
	end := strings.IndexFunc(release, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 0 {
		return release
	}
	return release[:end]
}
