package policy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// functions returns the functions that an expression can call. If the expression names facts, a string that is not a version makes the
// result unknown: a distribution's odd version is not a mistake in the policy.
func functions(facts bool) map[string]function.Function {
	return map[string]function.Function{
		"min": stdlib.MinFunc, "max": stdlib.MaxFunc, "ceil": stdlib.CeilFunc, "floor": stdlib.FloorFunc, "contains": stdlib.ContainsFunc,
		"regex": withCheck(stdlib.RegexFunc, checkPattern), "format": withCheck(stdlib.FormatFunc, checkFormat), "lower": stdlib.LowerFunc,
		"coalesce": stdlib.CoalesceFunc, "version_at_least": versionAtLeast(facts), "can": tryfunc.CanFunc, "try": tryfunc.TryFunc,
	}
}

// versionAtLeast compares versions by their leading numbers: 5.4.41 is at least 5.4.9, and 6.1.0-28-amd64 is at least 6.1.
func versionAtLeast(facts bool) function.Function {
	return function.New(&function.Spec{
		Description: "whether a version is equal to another one or later",
		Params:      []function.Parameter{{Name: "version", Type: cty.String}, {Name: "least", Type: cty.String}},
		Type:        function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			var numbers [2][]int
			for i, arg := range args {
				var err error
				numbers[i], err = VersionNumbers(arg.AsString())
				if err != nil && facts {
					return cty.UnknownVal(cty.Bool), nil
				}
				if err != nil {
					return cty.False, function.NewArgError(i, err)
				}
			}
			have, least := numbers[0], numbers[1]
			for i, l := range least {
				h := 0
				if i < len(have) {
					h = have[i]
				}
				if h != l {
					return cty.BoolVal(h > l), nil
				}
			}
			return cty.True, nil
		},
	})
}

func VersionNumbers(s string) ([]int, error) {
	end := strings.IndexFunc(strings.TrimPrefix(s, "v"), func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	digits := strings.TrimPrefix(s, "v")
	if end >= 0 {
		digits = digits[:end]
	}
	var numbers []int
	for part := range strings.SplitSeq(strings.Trim(digits, "."), ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("%q is not a version such as 5.4.41", s)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
