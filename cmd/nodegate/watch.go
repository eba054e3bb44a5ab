package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/audit"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/cmd/nodegate/internal/watch"
	"nodegate/internal/host"
	"nodegate/internal/host/file"
	"nodegate/internal/kube"
	"nodegate/internal/verdict"
	"nodegate/policy"
	"nodegate/units"
)

func newWatch() *cobra.Command {
	var o options
	var every time.Duration
	var listen, textfile string
	c := &cobra.Command{
		Use:   "watch",
		Short: "Keep running: set links that appear later, correct or report drift, serve metrics",
		Long: `Watch sets each link that appears, reappears or changes as the link requirements
ask, and inspects everything else every interval. It corrects, reports or ignores
drift, as the requirement's drift attribute says. If another program keeps
changing a setting back, watch reports the fight once, names the likely program,
and corrects the setting less and less often.

SIGHUP makes it read the policy again. ` + units.WatchUnit + ` runs it, and
"nodegate status" shows what it found.`,
		Example: `  nodegate watch
  nodegate watch --interval 10s --listen 127.0.0.1:9758
  nodegate watch --textfile /var/lib/prometheus/node-exporter`,
		Args: cobra.NoArgs,
	}
	o.policyFlags(c)
	o.guardFlag(c)
	c.Flags().DurationVar(&every, "interval", 30*time.Second, "inspect everything this often, a tenth more or less")
	c.Flags().StringVar(&listen, "listen", "", "serve /metrics, /healthz and /check on `HOST:PORT`, without encryption or password")
	c.Flags().StringVar(&textfile, "textfile", "", "write the metrics to nodegate.prom in `DIR`, for node_exporter's textfile collector")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if every < time.Second || every > time.Hour {
			return fmt.Errorf("--interval is between 1s and 1h; %s is not", every)
		}
		w, err := newWatcher(&o, c.ErrOrStderr())
		if err != nil {
			return err
		}
		defer w.Host.Close()
		defer w.Observer.Close()
		w.Every = every
		ctx, cancel := context.WithCancel(c.Context())
		defer cancel()
		served := make(chan error, 1)
		if listen != "" {
			l, err := watch.Listen(listen)
			if err != nil {
				return err
			}
			go func() {
				served <- watch.Serve(ctx, l, w.Pages())
				cancel()
			}()
		}
		cluster := kube.NewPublisher(host.Credential, w.Trouble)
		go cluster.Run(ctx)
		w.Publish = func(s watch.Status) {
			w.publish(s, textfile)
			want := s.Publication(w.Observer)
			if s.Policy != nil && s.Policy.Publish.By != policy.ByWatch {
				want = kube.Publication{}
			}
			cluster.Set(want)
		}
		debug.SetGCPercent(auditGC)
		again := make(chan struct{}, 1)
		auditor := audit.New(ctx, w.Observer, func() {
			select {
			case again <- struct{}{}:
			default: // one is asked for already
			}
		}, w.Trouble)
		w.Audit, w.Auditing, w.Again = auditor.Checks, auditor.Document, again
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		w.Reread = hup
		err = w.Run(ctx)
		select {
		case failed := <-served:
			err = errors.Join(err, failed)
		default:
		}
		return err
	}
	return c
}

// watcher is watch with a log: the journal, or standard error.
type watcher struct {
	*watch.Watcher
	stderr    io.Writer
	unwritten string // why the files could not be written last time
}

func newWatcher(o *options, stderr io.Writer) (*watcher, error) {
	h, err := o.machine()
	if err != nil {
		return nil, err
	}
	if !h.Live() {
		return nil, errors.New("watch is for the running machine; for a file tree use: nodegate check --root DIR")
	}
	look, err := o.machine()
	if err != nil {
		return nil, err
	}
	look.Remember()
	w := &watcher{Watcher: &watch.Watcher{Host: h, Observer: look}, stderr: stderr}
	type reading struct {
		files  []policy.File
		source policy.Source
	}
	var last, good reading // good is the last one that had no mistake
	var refused error      // of the last time that the files were read: it stays so until they are read again
	w.Policy = func(reread bool) (*policy.Policy, error) {
		var mistakes bytes.Buffer
		if reread || last.files == nil {
			var known policy.Options
			read, err := o.policyFiles(look)
			if err == nil {
				if known, err = o.known(&mistakes); err != nil {
					err = errors.New(firstLine(mistakes.String(), err))
				}
			}
			if refused = err; err == nil {
				last = reading{read, policy.Read(read, known)}
			}
		}
		err := refused
		if err == nil {
			var p *policy.Policy
			if p, err = o.on(look, last.source, last.files, &mistakes); err == nil {
				good = last
				return p, nil
			}
			err = errors.New(firstLine(mistakes.String(), err))
		}
		if good.files == nil {
			return nil, err
		}
		p, _ := o.on(look, good.source, good.files, io.Discard) // nil where the facts of now make a mistake of it
		return p, err
	}
	w.BreakGlass = func() string {
		why, err := h.BreakGlass(units.BreakGlassFile)
		if err != nil {
			w.say(host.LevelWarning, err.Error(), nil)
		}
		return why
	}
	w.Alive, w.AliveEvery = host.Alive, host.Watchdog()
	w.Ready = func(watch.Status) { host.Ready() }
	w.Corrected, w.Wrote, w.Changed, w.Fighting = w.corrected, report.RecordChange, w.changed, w.fighting
	w.Trouble = func(line string) { w.say(host.LevelWarning, line, nil) }
	return w, nil
}

func (w *watcher) say(level host.Level, line string, fields map[string]string) {
	line = "nodegate: " + report.OneLine(line)
	if !host.LogsToJournal() {
		host.Print(w.stderr, line)
		return
	}
	host.Log(level, line, fields)
}

func (w *watcher) corrected(c report.Correction) {
	name, verb, level := c.Subject(), "corrected", host.LevelNotice
	if c.New {
		verb, level = "set", host.LevelInfo
	}
	w.say(level, fmt.Sprintf("%s %s: was %s, is %s", verb, name, c.Was, c.Now), map[string]string{
		"NODEGATE_EVENT": verb, "NODEGATE_CHECK": c.Name, "NODEGATE_LINK": c.Link, "NODEGATE_WAS": c.Was, "NODEGATE_GOT": c.Now,
	})
}

func (w *watcher) changed(res checks.Result) {
	m := report.NewMessage(res)
	level := host.LevelWarning
	if res.Verdict == verdict.Pass || res.Verdict == verdict.Skipped {
		level, m.Text = host.LevelNotice, res.Name+" passes again: "+res.State.Got
	}
	m.Fields["NODEGATE_EVENT"] = res.Verdict.String()
	w.say(level, m.Text, m.Fields)
}

func (w *watcher) fighting(f report.Fight, over bool) {
	level, event, line := host.LevelError, "fight", fmt.Sprintf(
		"fight over %s: another program keeps changing it back; next correction at %s. %s", f.Name, f.Next.UTC().Format(time.TimeOnly), f.Writer)
	if over {
		level, event, line = host.LevelNotice, "fight-over", "the fight over "+f.Name+" has ended"
	}
	w.say(level, line, map[string]string{"NODEGATE_EVENT": event, "NODEGATE_CHECK": f.Name, "NODEGATE_WRITER": f.Writer})
}

// publish writes what watch found for "nodegate status", for node_exporter and
// in the unit's status. A file that cannot be written must not end watch.
func (w *watcher) publish(s watch.Status, textfile string) {
	d := s.Document(w.Host)
	host.Status(d.Line())
	err := report.Leave(report.WatchFile, d)
	if textfile != "" {
		var b bytes.Buffer
		err = errors.Join(err, d.Metrics(&b), file.Replace(filepath.Join(textfile, "nodegate.prom"), b.Bytes(), 0o644))
	}
	// A /run that is full is said once, not at every round.
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != "" && said != w.unwritten {
		w.say(host.LevelWarning, said, nil)
	}
	w.unwritten = said
}
