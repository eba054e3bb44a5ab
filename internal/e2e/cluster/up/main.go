// Command up starts the tests' cluster and keeps it until its standard input ends: a control plane, and two machines with nodegate
// installed. `make cluster` runs it.
//
//	up NODEGATE POD [VERSION]
//
// NODEGATE is the binary, POD the program for Pods.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"nodegate/internal/e2e/cluster"
	"nodegate/internal/e2e/vm"
)

const commandTime = 10 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: up NODEGATE POD [VERSION]")
		os.Exit(2)
	}
	version := cluster.Newest
	if len(os.Args) > 3 {
		version = os.Args[3]
	}
	if err := run(ctx, os.Args[1], os.Args[2], version); err != nil {
		fmt.Fprintln(os.Stderr, "up:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, nodegate, pod, version string) error {
	if missing := vm.Missing(); len(missing) > 0 {
		return fmt.Errorf("this host cannot run virtual machines:\n%s", strings.Join(missing, "\n"))
	}
	here, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	cache := vm.DefaultCache(here)
	scratch, err := cache.Scratch()
	if err != nil {
		return err
	}
	defer func() { _ = scratch.Close() }() // the next run removes leftovers
	printLine("building Kubernetes %s, once; this takes minutes", version)
	bin, err := cluster.Build(ctx, cluster.CacheDir(here), version, cluster.ForMachines())
	if err != nil {
		return err
	}
	base, err := cluster.NodeBase(ctx, cache, vm.Suite)
	if err != nil {
		return err
	}
	dir := filepath.Join(scratch.Dir, "plane")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	printLine("starting the control plane")
	plane, err := cluster.Start(ctx, bin, dir)
	if err != nil {
		return err
	}
	defer plane.Close()
	if err := plane.LetNodesJoin(ctx); err != nil {
		return err
	}
	machines := cluster.Nodes{Base: base, Plane: plane, Pod: pod, Scratch: scratch.Dir}
	nodes := map[string]*cluster.MachineNode{}
	defer func() {
		for _, n := range nodes {
			n.Kill()
		}
	}()
	for number := 1; number <= 2; number++ {
		n, err := machines.Make(ctx, number, func(tree string) error {
			out, err := exec.CommandContext(ctx, nodegate, "install", "--root", tree).CombinedOutput()
			if err != nil {
				return fmt.Errorf("nodegate install: %w\n%s", err, out)
			}
			return nil
		})
		if err != nil {
			return err
		}
		nodes[n.Name] = n
	}
	if err := boot(ctx, nodes); err != nil {
		return err
	}
	printLine("waiting for the nodes")
	out, err := plane.Kubectl(ctx, "within 400 ready node1; within 400 ready node2; kubectl get nodes -o wide")
	if err != nil {
		return err
	}
	fmt.Print(out)
	printLine(`ready. Type a command after the place where it is to run, and end with ctrl-D:
  plane kubectl get pods -A -o wide
  plane run web node1; service web
  node1 nodegate status
  node1 rmmod br_netfilter; sleep 31; lsmod | grep br_netfilter
Or, from another terminal: %s`, plane.EnterCommand())
	return runCommands(ctx, plane, nodes)
}

func boot(ctx context.Context, nodes map[string]*cluster.MachineNode) error {
	printLine("booting two machines")
	var all sync.WaitGroup
	failed := make(chan error, len(nodes))
	for _, n := range nodes {
		all.Go(func() {
			var err error
			if n.Guest, err = n.Machine.Boot(ctx, ""); err != nil {
				failed <- fmt.Errorf("%s: %w", n.Name, err)
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}

// runCommands executes the commands on standard input, line by line.
func runCommands(ctx context.Context, plane *cluster.ControlPlane, nodes map[string]*cluster.MachineNode) error {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
	}()
	for {
		fmt.Print("> ")
		select {
		case <-ctx.Done():
			return nil
		case line, more := <-lines:
			if !more {
				return nil
			}
			runCommand(ctx, plane, nodes, line)
		}
	}
}

func runCommand(ctx context.Context, plane *cluster.ControlPlane, nodes map[string]*cluster.MachineNode, line string) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	where, command, _ := strings.Cut(strings.TrimSpace(line), " ")
	if where == "" {
		return
	}
	if where == "plane" {
		out, err := plane.Kubectl(ctx, command)
		fmt.Print(out)
		if err != nil {
			fmt.Println(err)
		}
		return
	}
	n := nodes[where]
	if n == nil {
		fmt.Println("the first word is plane, node1 or node2")
		return
	}
	out, err := n.Guest.Run(ctx, command)
	fmt.Print(out.Stdout, out.Stderr)
	if err != nil {
		fmt.Println(err)
	}
}

func printLine(format string, args ...any) { fmt.Printf("--- "+format+"\n", args...) }
