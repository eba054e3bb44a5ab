package host

import "context"

// Replay is the host that a snapshot was taken of, as it was. It refuses every
// change.
func Replay(s *Snapshot) *Host {
	return &Host{Root: s.Root, Files: replayFiles{s}, Kernel: replayKernel{s}, Links: replayLinks{s}}
}

type replayFiles struct{ s *Snapshot }

func (r replayFiles) ReadFile(name string) ([]byte, error)  { return r.s.Files[name].get(name) }
func (r replayFiles) ReadDir(name string) ([]string, error) { return r.s.Dirs[name].get(name) }
func (r replayFiles) ReadLink(name string) (string, error)  { return r.s.SymLink[name].get(name) }
func (r replayFiles) Write(string, []byte) error            { return errReplay }

type replayKernel struct{ s *Snapshot }

func (r replayKernel) Release() (string, error)                    { return r.s.Kernel.get("kernel release") }
func (r replayKernel) LoadModules(context.Context, []string) error { return errReplay }

type replayLinks struct{ s *Snapshot }

func (r replayLinks) List(context.Context) ([]Link, error) { return r.s.List.get("links") }

func (r replayLinks) DefaultRoutes(context.Context) ([]string, error) {
	return r.s.Default.get("default routes")
}

func (r replayLinks) Driver(_ context.Context, link string) (string, error) {
	return r.s.Drivers[link].get("driver of " + link)
}

func (r replayLinks) Features(_ context.Context, link string) (map[string]Feature, error) {
	return r.s.Offload[link].get("features of " + link)
}

func (r replayLinks) SetFeatures(context.Context, string, map[string]bool) error { return errReplay }
func (r replayLinks) SetMTU(context.Context, string, int) error                  { return errReplay }
