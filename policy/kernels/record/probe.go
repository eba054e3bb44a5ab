package main

import (
	"fmt"
	"io/fs"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// probeAll reports for each parameter what the kernel does with values: "t KEY" before it tries them, then "v KEY DOMAIN". A
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
		case <-time.After(time.Minute):
			report("! stuck")
			_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
		}
	}
}

// parameter is a file below /proc/sys.
type parameter string

func (p parameter) read() (string, bool) {
	b, err := os.ReadFile(string(p))
	return strings.Join(strings.Fields(string(b)), " "), err == nil
}

func (p parameter) write(text string) bool {
	f, err := os.OpenFile(string(p), os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err == nil
}

// probe returns a parameter's domain, as package kernels describes it.
func probe(path string) string {
	p := parameter(path)
	info, err := os.Stat(path)
	if err != nil {
		return "?"
	}
	if info.Mode().Perm()&0o222 == 0 {
		return "r"
	}
	was, readable := p.read()
	if !readable || info.Mode().Perm()&0o444 == 0 {
		return "w"
	}
	if !p.write(was) && was != "" {
		return "?"
	}
	fields := strings.Fields(was)
	var domain string
	if len(fields) == 0 || slices.ContainsFunc(fields, notNumber) || typeOf(path) == "-" {
		domain = p.words(was)
	} else {
		for i := range fields {
			domain += " " + p.numbers(fields, i)
		}
		if len(fields) > 1 && p.refusesReverse(fields) {
			domain += " <"
		}
	}
	if now, _ := p.read(); now != was {
		p.write(was)
		if now, _ = p.read(); now != was {
			domain += " 1"
		}
	}
	return strings.TrimSpace(domain)
}

// words returns "*" if the kernel stores any word, else the accepted ones of those that parameters of this kind know.
func (p parameter) words(was string) string {
	defer p.write(was)
	if p.write("nonsense") {
		return "*"
	}
	candidates := []string{
		"0", "1", "2", "3", "4", "-1", "fq", "fq_codel", "pfifo_fast", "sfq", "pfifo", "bfifo", "noqueue", "cake", "pie", "fq_pie", "codel", "mq",
		"reno", "cubic", "bbr", "vegas", "htcp", "dctcp", "westwood", "hybla", "bic", "highspeed", "illinois", "scalable", "yeah", "lp", "nv", "cdg",
		"veno", "node", "zone", "default", "on", "off", "disabled", "enabled", "none", "ffff", "0-0",
	}
	var taken []string
	for _, c := range candidates {
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

// outcome of a write: refused, or the value that the kernel keeps.
func (p parameter) try(fields []string, i int, v *big.Int) (kept *big.Int, accepted bool) {
	with := slices.Clone(fields)
	with[i] = v.String()
	if !p.write(strings.Join(with, "\t")) {
		return nil, false
	}
	now, ok := p.read()
	p.write(strings.Join(fields, "\t"))
	got := strings.Fields(now)
	if !ok || len(got) != len(fields) {
		return nil, false
	}
	kept, ok = new(big.Int).SetString(got[i], 10)
	return kept, ok
}

// numbers returns the domain of one of a parameter's numbers: the smallest and the largest accepted one, accepted ones that the kernel
// stores as another value ("~WRITTEN:KEPT"), and small refused ones between the bounds ("!2").
func (p parameter) numbers(fields []string, i int) string {
	was, _ := new(big.Int).SetString(fields[i], 10)
	accepts := func(v *big.Int) bool { _, ok := p.try(fields, i, v); return ok }
	low, high := bound(was, big.NewInt(math.MinInt64), accepts), bound(was, new(big.Int).SetUint64(math.MaxUint64), accepts)
	domain := low.String() + ".." + high.String()
	inside := func(v *big.Int) bool { return v.Cmp(low) >= 0 && v.Cmp(high) <= 0 }
	for n := int64(-1); n <= 10; n++ {
		if v := big.NewInt(n); inside(v) && !accepts(v) {
			domain += fmt.Sprintf("!%d", n)
		}
	}
	exact := func(v *big.Int) bool { kept, ok := p.try(fields, i, v); return ok && kept.Cmp(v) == 0 }
	elow, ehigh := bound(was, low, exact), bound(was, high, exact)
	samples := []*big.Int{low, high, new(big.Int).Sub(elow, big.NewInt(1)), new(big.Int).Add(ehigh, big.NewInt(1))}
	for _, n := range []int64{-1, 0, 1, 2, 3, 5, 7, 10, 63, 99, 100, 1000, 1001, 4097, 12345, 99999, 100000, 1000003, 50000001, 4294967297} {
		samples = append(samples, big.NewInt(n))
	}
	seen := map[string]bool{}
	for _, v := range samples {
		if kept, ok := p.try(fields, i, v); inside(v) && ok && kept.Cmp(v) != 0 && !seen[v.String()] {
			seen[v.String()] = true
			domain += "~" + v.String() + ":" + kept.String()
		}
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

// refusesReverse reports whether the kernel refuses the numbers in reverse order, where it takes them in rising order.
func (p parameter) refusesReverse(fields []string) bool {
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
