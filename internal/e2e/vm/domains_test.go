//go:build vm

package vm

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/e2e/qemu"
	"nodegate/internal/require"
	"nodegate/policy"
	"nodegate/policy/kernels"
	"nodegate/policy/lint"
)

// writeEach writes each line "PATH VALUE" of its input, prints "PATH STORED" or "PATH refused", and writes the old value back. It starts
// no program: a parameter may prevent that for a moment. A parameter that this kernel lacks is left out. (The read of dash reads byte by
// byte, which /proc/sys does not support.)
const writeEach = `
cd /proc/sys
bash -c '
while read -r path value; do
	[ -e "$path" ] && read -r old 2>/dev/null <"$path" || continue
	echo "$path $value" >/dev/ttyS0
	if printf "%s" "$value" 2>/dev/null >"$path"; then
		read -r now <"$path"
		printf "%s" "$old" 2>/dev/null >"$path"
		echo "$path $now"
	else
		echo "$path refused"
	fi
done' <<'END'
`

// TestDomains writes random values, within the recorded ranges and outside of them, to random parameters of real kernels: Lint
// reports a value if and only if the kernel refuses it. LONG=1 tries 300 on each recorded kernel.
func TestDomains(t *testing.T) {
	t.Parallel()
	count, suites := 100, []string{"bookworm"}
	if os.Getenv("LONG") != "" {
		count, suites = 300, []string{"bookworm", "trixie", "bullseye"}
	}
	catalogue, err := kernels.Read()
	require.NoError(t, err)
	versions := map[string]string{"bullseye": "5.10", "bookworm": "6.1", "trixie": "6.12"}
	for _, suite := range suites {
		t.Run(suite, func(t *testing.T) {
			r := newRunner(t)
			if suite != "bookworm" {
				r.Base, err = DefaultCache(mustAbs(t, repository)).Other(t.Context(), suite, "oldest")
				require.NoError(t, err)
			}
			m, err := r.makeMachine(t.Context(), Scenario{Folder: Folder{Name: "domains-" + suite}}, t.TempDir())
			require.NoError(t, err)
			guest, err := m.Boot(t.Context(), "")
			require.NoError(t, err)
			defer guest.Kill()
			seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number does
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			compared, reported := 0, 0
			for compared < count {
				tries := randomValues(catalogue, versions[suite], random, 150)
				out, err := guest.Run(t.Context(), writeEach+strings.Join(tries, "\n")+"\nEND\n")
				if err != nil || out.Code != 0 {
					t.Fatalf("%v, %+v\n%s", err, out, qemu.Tail(guest.Console(), 20))
				}
				require.True(t, strings.Contains(out.Stdout, "\n"), "no parameter was written: %+v", out)
				for line := range strings.Lines(out.Stdout) {
					path, stored, _ := strings.Cut(strings.TrimSpace(line), " ")
					i := slices.IndexFunc(tries, func(l string) bool { return strings.HasPrefix(l, path+" ") })
					value := strings.TrimPrefix(tries[i], path+" ")
					why := lintOn(versions[suite], catalogue, path, value)
					if compared++; why != "" {
						reported++
					}
					assert.True(t, (stored == "refused") == (why != ""), "%s = %s: the kernel: %s; lint: %q", path, value, stored, why)
				}
			}
			t.Logf("%d values on Linux %s, %d of them reported", compared, versions[suite], reported)
		})
	}
}

// lintOn returns what Lint reports about a value on one kernel, or "".
func lintOn(version string, catalogue *kernels.Catalogue, path, value string) string {
	when := fmt.Sprintf("version_at_least(kernel.version, %q)", version)
	if all := catalogue.Versions(); version != all[len(all)-1] {
		when += fmt.Sprintf(" && !version_at_least(kernel.version, %q)", all[slices.Index(all, version)+1])
	}
	text := fmt.Sprintf("sysctl %q {\n  value = %q\n  when = %s\n  severity = \"warn\"\n}\n", path, value, when)
	for _, d := range lint.Lint([]policy.File{{Name: "p.hcl", Text: []byte(text)}}, policy.Options{}) {
		if slices.Contains([]string{"Refused by the kernel", "Read-only"}, d.Summary) {
			return d.Detail
		}
	}
	return ""
}

// randomValues returns lines "PATH VALUE" for parameters with recorded numbers.
func randomValues(catalogue *kernels.Catalogue, version string, random *rand.Rand, n int) []string {
	var lines []string
	seen := map[string]bool{"kernel/printk": true, "kernel/modules_disabled": true} // the console has the answers; the kernel keeps it
	for range 100 * n {
		key := catalogue.Parameters[random.IntN(len(catalogue.Parameters))]
		at := slices.IndexFunc(catalogue.Domains(key), func(d kernels.Domain) bool { return d.Version == version })
		if at < 0 || seen[key] || len(lines) == n {
			continue
		}
		seen[key] = true
		d := catalogue.Domains(key)[at]
		low, high, known := d.Limits()
		if !known {
			continue
		}
		value := randomNumber(low, high, random).String()
		if d.Answer(value) == kernels.Unknown || d.OneWay(value) || value == "0" && slices.Contains(kernels.Rules("zero")[0].Words, key) {
			continue
		}
		lines = append(lines, strings.ReplaceAll(key, "*", "default")+" "+value)
	}
	return lines
}

// randomNumber returns a number at the limits, beyond them, or between them.
func randomNumber(low, high *big.Int, random *rand.Rand) *big.Int {
	one, any := big.NewInt(1), new(big.Int).SetUint64(random.Uint64()>>random.IntN(64))
	switch random.IntN(7) {
	case 0:
		return new(big.Int).Sub(low, one)
	case 1:
		return new(big.Int).Add(high, one)
	case 2:
		return new(big.Int).Sub(low, any)
	case 3:
		return new(big.Int).Add(high, any)
	case 4:
		return low
	case 5:
		return new(big.Int).Add(low, new(big.Int).Rem(any, new(big.Int).Add(new(big.Int).Sub(high, low), one)))
	}
	return big.NewInt(int64(random.IntN(100000)))
}
