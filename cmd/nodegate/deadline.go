package main

import (
	"context"
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
)

// grace is how long a verb may take to end by itself, after a signal or at the end
// of --timeout. Whatever it does then can be interrupted: installations are finished
// by the next run.
const grace = 700 * time.Millisecond

// lateGrace is the same at the end of a long --timeout: a machine that needed all of it may be too busy to print what was found in less.
func lateGrace(limit time.Duration) time.Duration { return max(grace, limit/10) }

// unhandled is how long SIGINT and SIGTERM end what stands in the boot path as they end a program without a handler, as if
// they had come before it began. The runtime takes a tenth of a check to set up a handler, and most checks end before this
// time does. Other verbs make what must go with them, a machine or namespaces.
const unhandled = 10 * time.Millisecond

// untilSignal returns a context that SIGINT and SIGTERM end. Soon afterwards they end
// the process too: it may be waiting for a pipe, or computing.
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

// boundAll marks a flag of how long the whole verb may take.
const boundAll = "bounds the verb"

// timeoutFlag adds --timeout, which bounds everything that the verb does.
func timeoutFlag(f *pflag.FlagSet, to *time.Duration, otherwise time.Duration, usage string) {
	f.DurationVar(to, "timeout", otherwise, usage)
	f.Lookup("timeout").Annotations = map[string][]string{boundAll: nil}
}

// begin refuses values that stand for a mistake in a script, and bounds the verb.
func begin(c *cobra.Command, _ []string) error {
	var empty error
	c.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		what, _ := pflag.UnquoteUsage(f)
		if _, format := f.Value.(outputValue); format {
			return // its value is empty where it is the name of a format
		}
		if slices.Contains(values, "") && (strings.Contains(what, "FILE") || strings.Contains(what, "DIR")) {
			empty = fmt.Errorf("--%s is empty: is a variable of the script not set? Name the %s, or leave --%[1]s out", f.Name, what)
		}
	})
	if empty != nil {
		return empty
	}
	return bound(c)
}

// bound ends the process soon after --timeout: the checks end by themselves, but what
// is read before them may never come.
func bound(c *cobra.Command) error {
	limit, err := limitOf(c)
	if err != nil || limit == 0 {
		return err
	}
	time.AfterFunc(limit+lateGrace(limit), func() {
		host.Print(os.Stderr, "nodegate: gave up after "+limit.String()+" (--timeout)")
		os.Exit(exitUnknown)
	})
	return nil
}

// limitOf returns how long a call may take, 0 where it has no end of its own.
func limitOf(c *cobra.Command) (time.Duration, error) {
	f := c.Flags().Lookup("timeout")
	if f == nil || c.Flags().Changed("follow") { // publish goes on then until it is stopped
		return 0, nil
	}
	if _, all := f.Annotations[boundAll]; !all {
		return 0, nil
	}
	limit, err := time.ParseDuration(f.Value.String())
	if err == nil && limit <= 0 {
		err = fmt.Errorf("--timeout is how long this may take, longer than 0, for example %s; %s is not", f.DefValue, limit)
	}
	return limit, err
}
