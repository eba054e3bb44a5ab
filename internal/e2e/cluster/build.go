package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"nodegate/internal/e2e/vm"
)

const (
	Newest = "1.37.2" // the version of Kubernetes under test, unless $KUBERNETES names another
	Older  = "1.31.4" // the newest minor version two years earlier

	containerd = "2.4.2" // for Debian 11, whose own containerd lacks CRI v1
)

// ForRules returns the programs that a control plane and a ProxyNode need.
func ForRules() []string { return []string{"kube-apiserver", "kube-proxy"} }

// ForMachines returns the programs that machines need.
func ForMachines() []string {
	return append(ForRules(), "kube-controller-manager", "kubectl", "kubelet")
}

const buildTime = time.Hour // for one program: beside three emulated machines kube-apiserver took twenty minutes

// CacheDir is $XDG_CACHE_HOME/nodegate/cluster, or .cache/cluster in the repository if that variable is unset.
func CacheDir(repository string) string {
	return filepath.Join(filepath.Dir(vm.DefaultCache(repository).Dir), "cluster")
}

// staging matches a line of kubernetes' go.mod that names a module in the same repository.
var staging = regexp.MustCompile(`(?m)^\s+(k8s\.io/\S+) v0\.0\.0$`)

// Build returns the directory with programs of one version of Kubernetes, such as 1.36.3. It first compiles missing programs in a
// temporary module, which takes minutes. Other callers wait in the meantime.
func Build(ctx context.Context, cache, version string, programs []string) (string, error) {
	flags := "-s -w -X k8s.io/component-base/version.gitVersion=v" + version
	return buildPrograms(cache, version, programs, func(module, program, target string) error {
		if err := writeModule(ctx, module, version); err != nil {
			return err
		}
		_, err := goTool(ctx, module, "build", "-o", target, "-ldflags", flags, "k8s.io/kubernetes/cmd/"+program)
		return err
	})
}

// BuildContainerd is like Build for containerd's programs.
func BuildContainerd(ctx context.Context, cache string) (string, error) {
	const module = "github.com/containerd/containerd/v2"
	programs := []string{"containerd", "containerd-shim-runc-v2", "ctr"}
	return buildPrograms(cache, "containerd-"+containerd, programs, func(dir, program, target string) error {
		text := fmt.Sprintf("module containerd\n\ngo 1.26\n\nrequire %s v%s\n", module, containerd)
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o644); err != nil {
			return err
		}
		_, err := goTool(ctx, dir, "build", "-o", target, "-ldflags", "-s -w", module+"/cmd/"+program)
		return err
	})
}

// buildPrograms returns the directory with programs of a version. It calls compile for each missing one, with a directory for its module.
func buildPrograms(cache, version string, programs []string, compile func(module, program, target string) error) (string, error) {
	bin, module := filepath.Join(cache, "bin-"+version), filepath.Join(cache, "src-"+version)
	for _, dir := range []string{bin, module} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", fmt.Errorf("making the cache: %w", err)
		}
	}
	held, err := vm.Lock(filepath.Join(cache, version+".lock"), syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer held.Close()
	for _, program := range programs {
		target := filepath.Join(bin, program)
		switch _, err := os.Stat(target); {
		case err == nil:
			continue
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
		building := target + ".building" // a killed build leaves this and never target
		if err := compile(module, program, building); err != nil {
			return "", fmt.Errorf("building %s %s: %w", program, version, err)
		}
		if err := os.Rename(building, target); err != nil {
			return "", fmt.Errorf("renaming %s: %w", program, err)
		}
	}
	return bin, nil
}

// writeModule writes a go.mod that requires kubernetes, and replaces its staging modules with the published ones.
func writeModule(ctx context.Context, dir, version string) error {
	target := filepath.Join(dir, "go.mod")
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	found, err := downloadModule(ctx, dir, "k8s.io/kubernetes@v"+version)
	if err != nil {
		return err
	}
	theirs, err := os.ReadFile(found.GoMod)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("module kubernetes\n\ngo 1.26\n\nrequire k8s.io/kubernetes v%s\n\n", version)
	for _, m := range staging.FindAllStringSubmatch(string(theirs), -1) {
		text += fmt.Sprintf("replace %s v0.0.0 => %s v0%s\n", m[1], m[1], strings.TrimPrefix(version, "1"))
	}
	return os.WriteFile(target, []byte(text), 0o644)
}

// downloaded is the go command's description of a module in its cache.
type downloaded struct{ GoMod, Dir string }

// downloadModule fetches a module, MODULE@VERSION.
func downloadModule(ctx context.Context, dir, module string) (d downloaded, err error) {
	out, err := goTool(ctx, dir, "mod", "download", "-json", module)
	if err == nil {
		err = json.Unmarshal([]byte(out), &d)
	}
	return d, err
}

// goFlags leave out debug information, which saves an eighth of the compiler's time.
const goFlags = "-mod=mod -gcflags=all=-dwarf=false"

// goTool runs the go command in a directory with its own module. It has a quarter of the priority of emulated machines that run at the
// same time; with less, the tests that wait for it finished last.
func goTool(ctx context.Context, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "5", "go"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+goFlags, "GOWORK=off")
	cmd.WaitDelay = time.Second
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, complaints.String())
	}
	return string(out), nil
}
