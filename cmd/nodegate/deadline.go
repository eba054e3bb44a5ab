package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nodegate/internal/host"
	"nodegate/internal/host/activity"
)

// grace bounds how long a verb may take to end by itself, after a signal or at the end
// of --timeout. It may be interrupted then: the next run finishes an installation.
const grace = 700 * time.Millisecond

// lateGrace replaces grace at the end of a long --timeout: a machine that used all of it may be too busy to print its findings in less.
func lateGrace(limit time.Duration) time.Duration { return max(grace, limit/10) }

// unhandled delays the signal handler of the verbs in the boot path. Until then SIGINT and SIGTERM end them as they end a
// program without a handler. Installing a handler costs a tenth of a check, and most checks are done before the delay is over.
// Other verbs need the handler from the start: they create machines or namespaces that must not outlive them.
const unhandled = 10 * time.Millisecond

// untilSignal returns a context that SIGINT and SIGTERM cancel. If the process still runs after grace, it
// exits: it may be waiting for a pipe, or computing.
func untilSignal(args []string) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	wait := func() {
		code := 128
		if s, ok := (<-signals).(syscall.Signal); ok {
			code += int(s)
		}
		cancel(exit(code))
		time.Sleep(grace)
		os.Exit(code)
	}
	if len(args) > 0 && slices.Contains([]string{"check", "gate", "apply"}, args[0]) {
		time.AfterFunc(unhandled, func() {
			signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
			wait()
		})
		return ctx
	}
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go wait()
	return ctx
}

// interrupted returns the exit status of a call that a signal has ended, or nil. The operator ended it, so it gives no verdict.
func interrupted(c *cobra.Command, done string) error {
	code, is := errors.AsType[exit](context.Cause(c.Context()))
	if !is {
		return nil
	}
	fmt.Fprintln(c.ErrOrStderr(), "nodegate: interrupted"+done)
	return code
}

// boundAll marks a flag that bounds the whole verb.
const boundAll = "bounds the verb"

// timeoutFlag adds --timeout, which bounds everything that the verb does.
func timeoutFlag(f *pflag.FlagSet, to *time.Duration, otherwise time.Duration, usage string) {
	f.DurationVar(to, "timeout", otherwise, usage)
	f.Lookup("timeout").Annotations = map[string][]string{boundAll: nil}
}

// checkFlags rejects empty values, which come from an unset variable in a script, and bounds the verb.
func checkFlags(c *cobra.Command, _ []string) error {
	var wrong error
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == "output" && f.Value.String() == "-" { // standard output, as without the flag
			_ = f.Value.Set("") // a string takes any value
			return
		}
		if f.Name == "output" && isFormat(f.Value.String()) {
			wrong = fmt.Errorf("-o takes a file here, not a format; to write a file of that name, use ./%s", f.Value)
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		what, _ := pflag.UnquoteUsage(f)
		if _, format := f.Value.(outputValue); format {
			return // its value is empty if it named a format
		}
		if slices.Contains(values, "") && (strings.Contains(what, "FILE") || strings.Contains(what, "DIR")) {
			wrong = fmt.Errorf("--%s is empty; is a variable in your script unset? give a %s, or leave out --%[1]s", f.Name, what)
		}
	})
	if wrong != nil {
		return wrong
	}
	if err := checkFormat(c); err != nil {
		return err
	}
	return limitVerb(c)
}

// limitVerb ends the process soon after --timeout: the checks end by themselves, but
// reading their input may block forever.
func limitVerb(c *cobra.Command) error {
	limit, err := limitOf(c)
	if err != nil || limit == 0 {
		return err
	}
	ctx, steps := activity.With(c.Context())
	c.SetContext(ctx)
	time.AfterFunc(limit+lateGrace(limit), func() {
		why := "nodegate: timed out after " + limit.String() + " (--timeout)"
		if step := steps.Now().String(); step != "" {
			why += ": " + step
		}
		host.Print(os.Stderr, why)
		os.Exit(exitUnknown)
	})
	return nil
}

// limitOf returns how long a call may take, or 0 if the call has no limit.
func limitOf(c *cobra.Command) (time.Duration, error) {
	f := c.Flags().Lookup("timeout")
	if f == nil || c.Flags().Changed("follow") { // publish --follow runs until it is stopped
		return 0, nil
	}
	if _, all := f.Annotations[boundAll]; !all {
		return 0, nil
	}
	limit, err := time.ParseDuration(f.Value.String())
	if err == nil && limit <= 0 {
		err = fmt.Errorf("--timeout must be positive, for example %s; got %s", f.DefValue, limit)
	}
	return limit, err
}
