package policy

import (
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"
)

// Tuning is one number of a link's rings, channels or interrupt coalescing.
type Tuning struct {
	Kind  string // ring, channels or coalesce
	Name  string // as ethtool -G, -L or -C takes it
	Value uint32
	Max   bool // the driver's maximum in place of Value
}

// TuningKinds returns the kinds in the order in which they are set. A change of the channels can change the rings.
func TuningKinds() []string { return []string{"channels", "ring", "coalesce"} }

// tuningNames returns the names of a kind: the words of ethtool(8) that its ioctl has (struct ethtool_ringparam, ethtool_channels and
// ethtool_coalesce of linux/ethtool.h).
func tuningNames(kind string) []string {
	switch kind {
	case "channels":
		return []string{"combined", "other", "rx", "tx"}
	case "ring":
		return []string{"rx", "rx-jumbo", "rx-mini", "tx"}
	}
	return []string{"adaptive-rx", "adaptive-tx", "rx-frames", "rx-frames-high", "rx-frames-irq", "rx-frames-low", "rx-usecs", "rx-usecs-high",
		"rx-usecs-irq", "rx-usecs-low", "tx-frames", "tx-frames-high", "tx-frames-irq", "tx-frames-low", "tx-usecs", "tx-usecs-high",
		"tx-usecs-irq", "tx-usecs-low", "stats-block-usecs", "sample-interval", "pkt-rate-low", "pkt-rate-high"}
}

// IsSwitch reports whether the setting is on or off.
func (t Tuning) IsSwitch() bool { return strings.HasPrefix(t.Name, "adaptive-") }

// Resets reports whether the driver may reset the link to change the setting.
func (t Tuning) Resets() bool { return t.Kind != "coalesce" }

// Setting returns the setting's name in reports: "ring.rx".
func (t Tuning) Setting() string { return t.Kind + "." + t.Name }

// Want returns the required value: "max", "on", "512".
func (t Tuning) Want() string {
	if t.Max {
		return "max"
	}
	return t.Text(t.Value)
}

// Text returns a value of the setting as ethtool prints it.
func (t Tuning) Text(value uint32) string {
	switch {
	case t.IsSwitch() && value == 0:
		return "off"
	case t.IsSwitch():
		return "on"
	}
	return strconv.FormatUint(uint64(value), 10)
}

// Number returns the value of a text that Text returned.
func (t Tuning) Number(text string) (uint32, error) {
	switch text {
	case "on":
		return 1, nil
	case "off":
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err
}

func (r *reader) decodeTunings(b block) []Tuning {
	var all []Tuning
	for _, kind := range TuningKinds() {
		v, ok := r.value(b.get(kind))
		if !ok {
			continue
		}
		if !v.Type().IsObjectType() && !v.Type().IsMapType() {
			r.errorf(b.at(kind), "Wrong type", "%s must be a map from a name of ethtool(8) to a number: %[1]s = { %s }.", kind,
				map[string]string{"channels": "combined = 4", "ring": "rx = 512", "coalesce": "rx-usecs = 50"}[kind])
			continue
		}
		var some []Tuning
		for name, value := range v.AsValueMap() {
			t := Tuning{Kind: kind, Name: name}
			if !slices.Contains(tuningNames(kind), name) {
				r.errorf(b.at(kind), "Unknown "+kind+" setting", "%q is not a name that ethtool uses for %s; known names: %s.%s", name, kind,
					strings.Join(tuningNames(kind), ", "), didYouMean(name, tuningNames(kind)))
				continue
			}
			if r.decodeAmount(b, &t, value) {
				some = append(some, t)
			}
		}
		slices.SortFunc(some, func(a, b Tuning) int { return strings.Compare(a.Name, b.Name) })
		all = append(all, some...)
	}
	return all
}

func (r *reader) decodeAmount(b block, t *Tuning, v cty.Value) bool {
	known := !v.IsNull() && v.IsKnown()
	switch {
	case known && t.IsSwitch() && v.Type() == cty.Bool:
		if v.True() {
			t.Value = 1
		}
		return true
	case known && t.Resets() && v.Type() == cty.String && v.AsString() == "max":
		t.Max = true
		return true
	case known && !t.IsSwitch() && v.Type() == cty.Number:
		if n, exact := v.AsBigFloat().Int64(); exact == big.Exact && n == int64(uint32(n)) {
			t.Value = uint32(n)
			return true
		}
	}
	switch {
	case t.IsSwitch():
		r.errorf(b.at(t.Kind), "Wrong value", "%s must be true or false, without quotes.", t.Setting())
	case t.Resets():
		r.errorf(b.at(t.Kind), "Wrong value", "%s must be a whole number of at most 32 bits, or \"max\".", t.Setting())
	default:
		r.errorf(b.at(t.Kind), "Wrong value", "%s must be a whole number of at most 32 bits.", t.Setting())
	}
	return false
}

// contradictingTuning returns the name of a setting to which two links give different values, or "".
func contradictingTuning(some, others []Tuning) string {
	for _, a := range some {
		for _, b := range others {
			if a.Setting() == b.Setting() && a != b {
				return a.Setting()
			}
		}
	}
	return ""
}
