package cage_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/cage"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
	"nodegate/internal/require"
)

// caller is what the process in the first namespaces hands to the one that runs commands in cages.
type caller struct {
	Script  string
	Seconds float64
	Units   map[string]string
	Outside *cage.Outside
}

type answer struct {
	Cage  cage.Cage
	Would cage.Record
	Error string
}

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "cage":
		os.Exit(cage.Main(os.Args[2:]))
	case len(os.Args) > 1 && os.Args[1] == "caller":
		var in caller
		if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
			panic(err)
		}
		_ = json.NewEncoder(os.Stdout).Encode(call(in))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func call(in caller) (a answer) {
	for i, name := range in.Outside.Trees {
		in.Outside.Files = append(in.Outside.Files, os.NewFile(uintptr(3+i), name))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(in.Seconds*float64(time.Second)))
	defer cancel()
	n, err := netns.New(ctx)
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer n.Close()
	c, err := cage.Run(ctx, cage.Spec{Args: []string{"sh", "-c", in.Script}, Network: n.FD(), Units: in.Units,
		Self: []string{"/proc/self/exe", "cage"}, Outside: in.Outside})
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer c.Close()
	return answer{Cage: *c, Would: c.Would()}
}

// start starts a process that runs a script in a cage, as root of a new user namespace.
func start(t *testing.T, in caller) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	hosttest.NeedRoot(t)
	var err error
	in.Outside, err = cage.Look()
	require.NoError(t, err)
	defer in.Outside.Close()
	spec, err := json.Marshal(in)
	require.NoError(t, err)
	all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1<<32 - 1}}
	cmd, out := exec.Command("/proc/self/exe", "caller"), &strings.Builder{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = strings.NewReader(string(spec)), out, os.Stderr, in.Outside.Files
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, UidMappings: all, GidMappings: all, Cloneflags: unix.CLONE_NEWUSER |
		unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWNET}
	runtime.LockOSThread() // Pdeathsig refers to the thread that started the child
	defer runtime.UnlockOSThread()
	require.NoError(t, cmd.Start())
	return cmd, out
}

func TestX(t *testing.T) {
	cmd, out := start(t, caller{Script: os.Getenv("SCRIPT"), Seconds: 10})
	t.Log(cmd.Wait())
	var a answer
	t.Log(json.Unmarshal([]byte(out.String()), &a))
	t.Logf("%d %v %s", a.Cage.Exit, a.Cage.Ended, a.Error)
	t.Logf("%+v", a.Would)
	t.Logf("%s", a.Cage.Said)
}
