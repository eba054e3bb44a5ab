package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/policy/kernels"
)

// probeAll reports the domain of each parameter: "t KEY" before it tries them, then "v KEY DOMAIN". A
// parameter that takes the machine down leaves only the first line; the next boot begins after it.
func probeAll(after string) {
	deadly, _ := os.ReadFile("/deadly")
	done := map[string]bool{}
	for key := range strings.FieldsSeq(string(deadly)) {
		done[key] = true
	}
	var paths []string
	_ = filepath.WalkDir("/proc/sys", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			paths = append(paths, path)
		}
		return nil
	})
	started := make(chan string)
	go powerOffIfStuck(started)
	for _, path := range paths {
		key := keyOf(path)
		if after != "" {
			if key == after {
				after = ""
			}
			done[key] = true
		}
		if done[key] {
			continue
		}
		done[key] = true
		started <- key
		report("t %s", key)
		report("v %s %s", key, probe(path))
	}
	close(started)
}

// powerOffIfStuck ends the guest if one parameter takes too long.
func powerOffIfStuck(started <-chan string) {
	for running := true; running; {
		select {
		case _, running = <-started:
		case <-time.After(3 * time.Minute):
			report("! stuck")
			_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
		}
	}
}

// parameter is a file below /proc/sys. stuck is the value after which it could not be set back. Nothing is tried after until: large
// values of some parameters take seconds each.
type parameter struct {
	path, stuck string
	until       time.Time
}

func (p *parameter) read() (string, bool) {
	b, err := os.ReadFile(p.path)
	return strings.Join(strings.Fields(string(b)), " "), err == nil
}

func (p *parameter) write(text string) bool { return p.writeValue(text) == nil }

func (p *parameter) writeValue(text string) error {
	f, err := os.OpenFile(p.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

// probe returns a parameter's domain, as package kernels describes it.
func probe(path string) string {
	p := &parameter{path: path, until: time.Now().Add(time.Minute)}
	info, err := os.Stat(path)
	fragments := regexp.MustCompile(`frag\w*_(low|high)_thresh$`) // each limits the other
	if err != nil || slices.Contains(ofThisMachine(), keyOf(path)) || fragments.MatchString(path) {
		return "?"
	}
	switch mode := info.Mode().Perm(); {
	case mode&0o222 == 0:
		return "r"
	case mode&0o444 == 0:
		return "w"
	}
	was, readable := p.read()
	if !readable {
		return "?"
	}
	fields := strings.Fields(was)
	restorable := p.write(was)
	var domain string
	if len(fields) == 0 || slices.ContainsFunc(fields, notNumber) || restorable && typeOf(path) == "-" {
		domain = p.words(was)
	} else {
		for i := range fields {
			domain += " " + p.numbers(fields, i, restorable)
		}
		if len(fields) > 1 && p.refusesReverse(fields) {
			domain += " <"
		}
	}
	switch {
	case !restorable:
		domain += " -"
	case p.stuck != "":
		domain += " ^" + p.stuck
	case p.write(was):
		if now, _ := p.read(); now != was { // its values depend on earlier ones
			return "?"
		}
	}
	return strings.TrimSpace(domain)
}

// ofThisMachine lists the parameters whose values or modes belong to the machine.
func ofThisMachine() []string {
	return []string{
		"kernel/cad_pid", "kernel/ns_last_pid", "kernel/watchdog_cpumask", "net/ipv4/vs/est_cpulist", "net/core/flow_limit_cpu_bitmap",
		"net/core/rps_default_mask", "kernel/nmi_watchdog", // needs a performance monitoring unit
	}
}

// words returns "*" if the kernel stores any word, else the accepted ones of those that parameters of this kind know.
func (p *parameter) words(was string) string {
	defer p.write(was)
	if p.write("nonsense") {
		return "*"
	}
	var taken []string
	for _, c := range kernels.TriedWords() {
		if p.write(c) {
			if now, _ := p.read(); now == c {
				taken = append(taken, c)
			}
		}
	}
	if taken == nil {
		return "?"
	}
	return "=" + strings.Join(taken, ",")
}

// try writes v in one of the numbers, or in all if i is -1, and sets the parameter back. It returns the value that the kernel keeps,
// or nil if the kernel refuses v.
func (p *parameter) try(fields []string, i int, v *big.Int, restore bool) *big.Int {
	if p.stuck != "" || time.Now().After(p.until) {
		return nil
	}
	with := slices.Clone(fields)
	for j := range with {
		if i == -1 || i == j {
			with[j] = v.String()
		}
	}
	switch err := p.writeValue(strings.Join(with, "\t")); {
	case errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EBUSY):
		return v // a larger machine takes it
	case err != nil:
		return nil
	}
	now, ok := p.read()
	if restore && !p.write(strings.Join(fields, "\t")) {
		p.stuck = v.String()
	}
	got := strings.Fields(now)
	if !ok || len(got) != len(fields) {
		return nil
	}
	kept, ok := new(big.Int).SetString(got[max(i, 0)], 10)
	if !ok {
		return nil
	}
	return kept
}

// numbers returns the domain of one of a parameter's numbers: the smallest and the largest accepted one, small refused ones, and whether
// the kernel stores some as another number.
func (p *parameter) numbers(fields []string, i int, restore bool) string {
	was, _ := new(big.Int).SetString(fields[i], 10)
	keep := func(v *big.Int) *big.Int {
		kept := p.try(fields, i, v, restore)
		if kept == nil && len(fields) > 1 { // the number may have to exceed another one
			kept = p.try(fields, -1, v, restore)
		}
		return kept
	}
	accepts := func(v *big.Int) bool { return keep(v) != nil }
	from := was
	if !restore { // the initial value is outside
		candidates := []*big.Int{big.NewInt(1), big.NewInt(0), big.NewInt(1 << 16), big.NewInt(1 << 20)}
		n := slices.IndexFunc(candidates, accepts)
		if n < 0 {
			return "?"
		}
		from = candidates[n]
	}
	low, high := bound(from, big.NewInt(math.MinInt64), accepts), bound(from, new(big.Int).SetUint64(math.MaxUint64), accepts)
	if time.Now().After(p.until) {
		return "?"
	}
	domain := low.String() + ".." + high.String()
	inside := func(v *big.Int) bool { return v.Cmp(low) >= 0 && v.Cmp(high) <= 0 }
	samples := []*big.Int{low, high}
	refused := ""
	for n := int64(-1); n <= 10; n++ {
		v := big.NewInt(n)
		if inside(v) && !accepts(v) && p.stuck == "" {
			refused += fmt.Sprintf("!%d", n)
		}
		samples = append(samples, v)
	}
	if refused == "!3!5!6!7!9!10" {
		refused = "!p"
	}
	domain += refused
	for _, n := range []int64{63, 99, 100, 1000, 1001, 4097, 12345, 99999, 100000, 1000003, 50000001, 1<<31 - 1, 1 << 31,
		1<<32 - 1, 1 << 32, 1<<32 + 1} {
		samples = append(samples, big.NewInt(n), big.NewInt(-n))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 24 { // of all magnitudes
		v := new(big.Int).SetUint64(random.Uint64() >> random.IntN(64))
		samples = append(samples, v, new(big.Int).Add(low, v), new(big.Int).Sub(high, v))
	}
	rounds := func(v *big.Int) bool {
		if !inside(v) {
			return false
		}
		kept := keep(v)
		return kept != nil && kept.Cmp(v) != 0
	}
	if slices.ContainsFunc(samples, rounds) {
		return domain + "~"
	}
	return domain
}

// bound returns the last value on the way from one that is accepted to a far one that is accepted too, if all between are.
func bound(from, far *big.Int, accepts func(*big.Int) bool) *big.Int {
	if accepts(far) {
		return far
	}
	good, bad := new(big.Int).Set(from), new(big.Int).Set(far)
	for {
		middle := new(big.Int).Add(good, bad)
		middle.Quo(middle, big.NewInt(2))
		if middle.Cmp(good) == 0 || middle.Cmp(bad) == 0 {
			return good
		}
		if accepts(middle) {
			good = middle
		} else {
			bad = middle
		}
	}
}

// refusesReverse reports whether the kernel refuses the numbers in reverse order, although it takes them in rising order.
func (p *parameter) refusesReverse(fields []string) bool {
	rising, falling := make([]string, len(fields)), make([]string, len(fields))
	for i := range fields {
		rising[i], falling[i] = fmt.Sprint(20000+1000*i), fmt.Sprint(20000+1000*(len(fields)-i))
	}
	defer p.write(strings.Join(fields, "\t"))
	return p.write(strings.Join(rising, "\t")) && !p.write(strings.Join(falling, "\t"))
}

// reportNamespaced reports the parameters that exist and can be written in another network namespace.
func reportNamespaced() {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		report("! unshare: %v", err)
		return
	}
	reported := map[string]bool{}
	_ = filepath.WalkDir("/proc/sys/net", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		key := keyOf(path)
		if info, err := d.Info(); err == nil && info.Mode().Perm()&0o222 != 0 && !reported[key] {
			reported[key] = true
			report("n %s", key)
		}
		return nil
	})
}
