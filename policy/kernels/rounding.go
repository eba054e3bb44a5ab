package kernels

import (
	"fmt"
	"math/big"
	"slices"
)

// rounding returns the number that the kernel keeps instead of v.
type rounding func(v *big.Int) *big.Int

// parseRounding returns the function with this name:
//
//	+N, -N   up or down to a multiple of N
//	p, q     up or down to a power of two
//	i, u     cut to 32 bits, signed or unsigned
//	b        1 unless v is 0
//	c        none
func parseRounding(name string) rounding {
	switch name {
	case "i", "u":
		return func(v *big.Int) *big.Int {
			cut := new(big.Int).And(v, big.NewInt(1<<32-1))
			if name == "i" {
				return big.NewInt(int64(int32(cut.Int64()))) //nolint:gosec // the kernel's own conversion
			}
			return cut
		}
	case "b":
		return func(v *big.Int) *big.Int { return big.NewInt(int64(min(1, v.CmpAbs(new(big.Int))))) }
	case "p", "q":
		return func(v *big.Int) *big.Int {
			if v.Sign() <= 0 {
				return v
			}
			one, bits := big.NewInt(1), v.BitLen()-1
			if name == "p" {
				bits = new(big.Int).Sub(v, one).BitLen()
			}
			return one.Lsh(one, uint(bits)) //nolint:gosec // a small number
		}
	}
	unit, ok := new(big.Int).SetString(name, 10)
	if !ok || unit.Sign() == 0 {
		return func(v *big.Int) *big.Int { return v }
	}
	up, unit := unit.Sign() > 0, unit.Abs(unit)
	return func(v *big.Int) *big.Int {
		if up {
			v = new(big.Int).Add(v, new(big.Int).Sub(unit, big.NewInt(1)))
		}
		return new(big.Int).Mul(unit, new(big.Int).Div(v, unit))
	}
}

// clamped limits the result of a rounding.
func clamped(round rounding, low, high *big.Int) rounding {
	return func(v *big.Int) *big.Int {
		switch kept := round(v); {
		case kept.Cmp(low) < 0:
			return low
		case kept.Cmp(high) > 0:
			return high
		default:
			return kept
		}
	}
}

// FitRounding returns what explains the pairs of a written and a kept number: "" if both are always equal, else "~NAME:LOW..HIGH" with
// a name that parseRounding takes and the limits of its result. If that explains only the pairs of a range of positive numbers, because
// large ones overflow, "@FIRST..LAST" follows. If nothing explains them, it returns "~?".
func FitRounding(pairs [][2]*big.Int) string {
	unequal := func(p [2]*big.Int) bool { return p[0].Cmp(p[1]) != 0 }
	if !slices.ContainsFunc(pairs, unequal) {
		return ""
	}
	slices.SortFunc(pairs, func(a, b [2]*big.Int) int { return a[0].Cmp(b[0]) })
	low, high := pairs[0][1], pairs[0][1]
	for _, p := range pairs {
		if p[1].Cmp(low) < 0 {
			low = p[1]
		}
		if p[1].Cmp(high) > 0 {
			high = p[1]
		}
	}
	for _, name := range roundings() {
		keeps := clamped(parseRounding(name), low, high)
		if !slices.ContainsFunc(pairs, func(p [2]*big.Int) bool { return keeps(p[0]).Cmp(p[1]) != 0 }) {
			return fmt.Sprintf("~%s:%d..%d", name, low, high)
		}
	}
	positive := slices.DeleteFunc(slices.Clone(pairs), func(p [2]*big.Int) bool { return p[0].Sign() <= 0 })
	best, most := "~?", 0
	for _, name := range roundings() {
		keeps, rounded := parseRounding(name), 0
		n := slices.IndexFunc(positive, func(p [2]*big.Int) bool {
			if unequal(p) {
				rounded++
			}
			return keeps(p[0]).Cmp(p[1]) != 0
		})
		if n < 0 {
			n = len(positive)
		}
		if n > max(most, 10) && rounded > 3 {
			most = n
			best = fmt.Sprintf("~%s:%d..%d@%d..%d", name, positive[0][1], positive[n-1][1], positive[0][0], positive[n-1][0])
		}
	}
	return best
}

// roundings returns the names of the roundings to try.
func roundings() []string {
	names := []string{"c", "b", "u", "i", "p", "q"}
	for _, n := range []int{2, 4, 8, 10, 16, 32, 40, 64, 100, 128, 250, 256, 512, 1000, 1024, 4096, 8192} {
		names = append(names, fmt.Sprintf("+%d", n), fmt.Sprintf("-%d", n))
	}
	return names
}
