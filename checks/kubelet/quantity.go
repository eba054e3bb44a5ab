package kubelet

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

// quantity returns the value of a quantity of Kubernetes, like 500m or 1.5Gi. It reads every one that Kubernetes reads (parseQuantityString
// and suffixHandler in apimachinery's pkg/api/resource, which is too large for these few lines).
func quantity(text string) (value float64, valid bool) {
	m := regexp.MustCompile(`^[+-]?([0-9]*\.?[0-9]*)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$`).FindStringSubmatch(text)
	if m == nil || text == "" {
		return 0, false
	}
	number, suffix := m[1], m[2]
	value, _ = strconv.ParseFloat("0"+number, 64) // the pattern has no other
	switch small := strings.Index("num", suffix); {
	case suffix == "":
	case small >= 0:
		value *= math.Pow(1000, float64(small-3))
	case strings.HasSuffix(suffix, "i"):
		value *= math.Pow(1024, float64(1+strings.Index("KMGTPE", suffix[:1])))
	case len(suffix) == 1:
		value *= math.Pow(1000, float64(1+strings.Index("kMGTPE", suffix)))
	default:
		exponent, _ := strconv.Atoi(suffix[1:])
		value *= math.Pow(10, float64(exponent))
	}
	if text[0] == '-' {
		value = -value
	}
	return value, true
}
