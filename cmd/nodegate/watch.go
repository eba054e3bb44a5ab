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
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"nodegate/checks"
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
	var o policyInput
	var every time.Duration
	var listen, textfile string
	c := &cobra.Command{
		Use:   "watch [POLICY]",
		Short: "Set links that appear later, correct drift, serve metrics",
		Long: `Watch applies the link requirements to each link that appears, reappears or
changes, and inspects everything else at every interval. The drift attribute of
a requirement decides whether watch corrects, reports or ignores drift. If
another program keeps changing a setting back, watch reports the fight once,
names the likely program, and corrects the setting less and less often.

SIGHUP makes watch reload the policy. ` + units.WatchUnit + ` runs watch, and
"nodegate status" shows its findings.`,
		Example: `  nodegate watch
  nodegate watch --interval 10s --listen 127.0.0.1:9758
  nodegate watch --textfile /var/lib/prometheus/node-exporter`,
		Args: policyArgs,
	}
	o.policyFlags(c)
	_ = c.Flags().MarkHidden("root") // it is refused with what to do instead
	o.guardFlag(c)
	c.Flags().DurationVar(&every, "interval", 30*time.Second, "inspect everything this often (plus or minus a tenth)")
	c.Flags().StringVar(&listen, "listen", "", "serve /metrics, /healthz and /check on `HOST:PORT`, without encryption or password")
	c.Flags().StringVar(&textfile, "textfile", "", "write the metrics to nodegate.prom in `DIR`, for the textfile collector of node_exporter")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if every < time.Second || every > time.Hour {
			return fmt.Errorf("--interval must be between 1s and 1h; got %s", every)
		}
		if listen == "" && c.Flags().Changed("listen") {
			return errors.New("--listen is empty; is a variable in your script unset? give HOST:PORT, or leave out --listen")
		}
		if info, err := os.Stat(textfile); textfile != "" && (err != nil || !info.IsDir()) {
			return fmt.Errorf("--textfile %s is not a directory; create it, or name the directory that node_exporter reads", textfile)
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
		if err := needRoot("watch", ", or look without changes with `nodegate check`"); err != nil {
			return err
		}
		cluster := kube.NewPublisher(host.Credential, w.Trouble)
		var publishing sync.WaitGroup
		publishing.Go(func() { cluster.Run(ctx) })
		w.Publish = func(s watch.Status) {
			w.publish(s, textfile)
			want := s.Publication(w.Observer)
			if s.Policy != nil && s.Policy.Publish.By != policy.ByWatch {
				want = kube.Publication{}
			}
			cluster.Set(want)
		}
		debug.SetGCPercent(auditGC)
		recheck := make(chan struct{}, 1)
		auditor := watch.NewAuditor(ctx, w.Observer, func() {
			select {
			case recheck <- struct{}{}:
			default: // a recheck is pending already
			}
		}, w.Trouble)
		w.Audit, w.Auditing, w.Again = auditor.Checks, auditor.Document, recheck
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		w.Reread = hup
		err = w.Run(ctx)
		cancel()
		publishing.Wait()
		w.leave(cluster)
		select {
		case failed := <-served:
			err = errors.Join(err, failed)
		default:
		}
		return err
	}
	return c
}

// watcher is a watch.Watcher that logs to the journal or to standard error.
type watcher struct {
	*watch.Watcher
	stderr    io.Writer
	unwritten string // why the files could not be written last time
}

func newWatcher(o *policyInput, stderr io.Writer) (*watcher, error) {
	h, err := o.machine()
	if err != nil {
		return nil, err
	}
	if !h.Live() {
		return nil, errors.New("watch works on the running machine; for a file tree run `nodegate check --root DIR`")
	}
	observer, err := o.machine()
	if err != nil {
		return nil, err
	}
	observer.Remember()
	h.Prove = atMostEvery(27*time.Second, prove) // a tenth before the usual interval of rounds
	observer.Prove = h.Prove
	w := &watcher{Watcher: &watch.Watcher{Host: h, Observer: observer}, stderr: stderr}
	type reading struct {
		files  []policy.File
		source policy.Source
	}
	var last, good reading // good is the last one without mistakes
	var refused error      // the error of the last read; it remains until the files are read again
	w.Policy = func(reread bool) (*policy.Policy, error) {
		var mistakes bytes.Buffer
		if reread || last.files == nil {
			var known policy.Options
			read, err := o.policyFiles(observer)
			if err == nil {
				if known, err = o.policyOptions(&mistakes); err != nil {
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
			if p, err = o.evaluateSource(observer, last.source, last.files, &mistakes); err == nil {
				good = last
				return p, nil
			}
			err = errors.New(firstLine(mistakes.String(), err))
		}
		if good.files == nil {
			return nil, err
		}
		p, _ := o.evaluateSource(observer, good.source, good.files, io.Discard) // nil if the policy has mistakes with the current facts
		return p, err
	}
	w.BreakGlass = func() string {
		why, err := h.BreakGlass(units.BreakGlassFile)
		if err != nil {
			w.logLine(host.LevelWarning, err.Error(), nil)
		}
		return why
	}
	w.Passed = report.GatePassed
	w.Alive, w.AliveEvery = host.Alive, host.Watchdog()
	w.Ready = func(watch.Status) { host.Ready() }
	w.Corrected, w.Wrote, w.Changed, w.Fighting = w.logCorrected, report.RecordChange, w.logChanged, w.logFight
	w.Trouble = func(line string) { w.logLine(host.LevelWarning, line, nil) }
	return w, nil
}

func (w *watcher) logLine(level host.Level, line string, fields map[string]string) {
	line = "nodegate: " + report.OneLine(line)
	if !host.LogsToJournal() {
		host.Print(w.stderr, line)
		return
	}
	host.Log(level, line, fields)
}

func (w *watcher) logCorrected(c report.Correction) {
	name, verb, level := c.Subject(), "corrected", host.LevelNotice
	if c.New {
		verb, level = "set", host.LevelInfo
	}
	w.logLine(level, fmt.Sprintf("%s %s: was %s, is %s", verb, name, c.Was, c.Now), map[string]string{
		"NODEGATE_EVENT": verb, "NODEGATE_CHECK": c.Name, "NODEGATE_LINK": c.Link, "NODEGATE_WAS": c.Was, "NODEGATE_GOT": c.Now,
	})
}

func (w *watcher) logChanged(res checks.Result) {
	m := report.NewMessage(res)
	level := host.LevelWarning
	if res.Verdict == verdict.Pass || res.Verdict == verdict.Skipped {
		level, m.Text = host.LevelNotice, res.Name+" passes again: "+res.State.Got
	}
	m.Fields["NODEGATE_EVENT"] = res.Verdict.String()
	w.logLine(level, m.Text, m.Fields)
}

func (w *watcher) logFight(f report.Fight, over bool) {
	level, event, line := host.LevelError, "fight", fmt.Sprintf(
		"fight over %s: another program keeps changing it back; next correction at %s. %s", f.Name, f.Next.UTC().Format(time.TimeOnly), f.Writer)
	if over {
		level, event, line = host.LevelNotice, "fight-over", "the fight over "+f.Name+" has ended"
	}
	w.logLine(level, line, map[string]string{"NODEGATE_EVENT": event, "NODEGATE_CHECK": f.Name, "NODEGATE_WRITER": f.Writer})
}

// leave writes that nothing checks the node any more, unless watch is to run again. Nothing else would ever change the condition.
func (w *watcher) leave(cluster *kube.Publisher) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if !host.Stops(ctx, units.WatchUnit) {
		return
	}
	if err := cluster.Last(ctx, watch.StoppedCondition()); err != nil {
		w.Trouble("publishing that watch stops: " + err.Error())
	}
}

// publish writes watch's findings for "nodegate status", for node_exporter and
// for the unit's status. A file that cannot be written must not end watch.
func (w *watcher) publish(s watch.Status, textfile string) {
	d := s.Document(w.Host)
	host.Status(d.Line())
	err := report.Leave(report.WatchFile, d)
	if textfile != "" {
		var b bytes.Buffer
		err = errors.Join(err, d.Metrics(&b), file.Output(filepath.Join(textfile, "nodegate.prom"), b.Bytes(), 0o644))
	}
	// Log a full /run once, not in every round.
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	if failure != "" && failure != w.unwritten {
		w.logLine(host.LevelWarning, failure, nil)
	}
	w.unwritten = failure
}
