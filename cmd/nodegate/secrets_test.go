package main

import (
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// secretsTest counts the canaries and the outputs in which it looks for them.
type secretsTest struct {
	*testing.T
	planted int
	outputs map[string]bool
}

// search reports each canary in an output.
func (t *secretsTest) search(where, output, text string) {
	t.Helper()
	t.outputs[output] = true
	if !strings.Contains(strings.ToLower(text), "cnry7f") { // much faster than the pattern
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		if hosttest.Canary().MatchString(line) {
			t.Errorf("%s: %s has a canary: %.400s", where, output, line)
			return
		}
	}
}

// TestSecrets plants canaries in every answer that any check reads, in what programs and servers
// print, and looks for them in every output. The answers are those that the checks were seen to
// read, so that the files of a new check are planted too. SECURITY.md: secrets.
func TestSecrets(t *testing.T) {
	t.Parallel()
	s := &secretsTest{T: t, outputs: map[string]bool{}}
	places, runs := s.plantAnswers()
	s.plantMessages()
	s.plantServers()
	s.plantMachine(places)
	const fewest = 1100
	assert.True(t, s.planted >= fewest, "only %d canaries", s.planted)
	t.Logf("%d canaries in %d answers, %d runs; none of them in %d outputs: %s", s.planted, len(places), runs, len(s.outputs),
		strings.Join(slices.Sorted(maps.Keys(s.outputs)), ", "))
}

// plantAnswers plants one answer of the fake node at a time.
func (t *secretsTest) plantAnswers() (places []hosttest.Place, runs int) {
	t.Helper()
	p := secretsLoad(t.T)
	list := catalog.For(p, checks.All)
	readers := map[hosttest.Place]map[int]bool{} // the checks that read an answer
	variants := map[hosttest.Place]int{}
	add := func(read map[hosttest.Place]int, concerned map[int]bool) {
		for place, n := range read {
			if hosttest.Canary().MatchString(place.Name) || strings.Count(place.Name, "zz-planted") > 1 {
				continue
			}
			if _, known := variants[place]; !known {
				places, readers[place] = append(places, place), map[int]bool{}
			}
			variants[place] = max(variants[place], n)
			maps.Copy(readers[place], concerned)
		}
	}
	for i, c := range list {
		var none hosttest.Canaries
		checks.Inspect(t.Context(), none.Host(secretsNode(t.T)), checks.All, []checks.Check{c})
		add(none.Read(), map[int]bool{i: true})
	}
	for i := 0; i < len(places); i++ { // planted answers make checks read more of them
		place := places[i]
		var concerned []checks.Check
		for _, n := range slices.Sorted(maps.Keys(readers[place])) {
			concerned = append(concerned, list[n])
		}
		for variant := range variants[place] {
			runs++
			c := hosttest.Canaries{Place: place, Variant: variant}
			run := secretsRun{t: t, where: place.String(), policy: p, list: concerned, host: c.Host(secretsNode(t.T)), brief: variant >= hosttest.Values}
			if run.outputs(); place.What == "rules" {
				run.audit()
			}
			t.planted += c.Planted()
			add(c.Read(), readers[place])
			// A public file leaves the machine no more than the rest, except the kernel's own words in /proc/sys.
			kernels := strings.HasPrefix(place.Name, "/proc/sys/") && !strings.HasSuffix(place.Name, "/core_pattern")
			if variant < hosttest.Values && place.What == "file" && !kernels {
				c := hosttest.Canaries{Place: place, Variant: variant, Public: true}
				run := secretsRun{t: t, where: "public " + place.String(), policy: p, list: concerned, host: c.Host(secretsNode(t.T)), brief: true}
				run.recorded()
				t.planted += c.Planted()
			}
		}
	}
	return places, runs
}

// plantMessages plants what programs print.
func (t *secretsTest) plantMessages() {
	t.Helper()
	p := secretsLoad(t.T)
	const refused = `invalid argument \"@\" for \"--x\" flag: strconv.ParseBool: parsing "@": cannot unmarshal !!str ` + "`@`" +
		`, unrecognized feature gate: @, https://u:@/ token=@ @`
	const plugin = "/usr/bin/kubelet"
	for where, plant := range map[string]func(m *hosttest.Machine, text string){
		"kubelet --version": func(m *hosttest.Machine, text string) {
			m.Version[plugin] = "Kubernetes v1.35.0 (" + text + ")\n" + text
		},
		"iptables --version": func(m *hosttest.Machine, text string) { m.Version["iptables"] = "iptables v1.8.2 (nf_tables) " + text },
		"kubelet's trial start": func(m *hosttest.Machine, text string) {
			m.Said = map[string]string{plugin: `E1 run.go:72] "command failed" err="failed to load kubelet config file, path: /x, error: ` + text + `"`}
		},
		"kubelet's last line": func(m *hosttest.Machine, text string) {
			m.Crashes["kubelet.service"] = host.Crash{Restarts: 9, Active: "failed", Exit: "exit status 1", Line: "E1 run.go:72] " + text}
		},
		"systemd's error about the unit": func(m *hosttest.Machine, text string) {
			m.Loaded["kubelet.service"] = host.Loaded{State: "bad-setting", Error: text}
		},
	} {
		text, n := hosttest.WithCanaries(refused)
		t.planted += n
		m := secretsNode(t.T)
		m.Modes = map[string]fs.FileMode{"/etc/kubernetes/kubelet.conf": 0o600} // kubelet's words keep other values
		m.Files["/etc/kubernetes/kubelet.conf"] += "extensions: " + strconv.Quote(text) + "\n"
		plant(m, text)
		run := secretsRun{t: t, where: where, policy: p, list: catalog.For(p, checks.All), host: m.Host()}
		run.outputs()
	}
}
