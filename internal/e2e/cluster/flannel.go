package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"nodegate/internal/e2e/vm"
)

// FlannelVersion is the tested version of flanneld.
const FlannelVersion = "0.28.10"

const flannelUser = "flannel"

// NodeCIDRs returns the flags with which kube-controller-manager assigns each Node a range of Pod addresses.
func NodeCIDRs() []string {
	return []string{"--allocate-node-cidrs=true", "--cluster-cidr=" + PodCIDR}
}

// BuildFlannel returns flanneld, compiled from the Go module proxy without two backends: Tencent's needs a module that the proxy lacks,
// and UDP's needs a C compiler.
func BuildFlannel(ctx context.Context, cache string) (string, error) {
	const module, name = "github.com/flannel-io/flannel", "flanneld"
	version := "v" + FlannelVersion
	flags := "-s -w -X " + module + "/pkg/version.Version=" + version
	bin, err := buildPrograms(cache, "flannel-"+FlannelVersion, []string{name}, func(dir, _, target string) error {
		text := fmt.Sprintf("module flannel\n\ngo 1.26\n\nrequire %s %s\n", module, version)
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o644); err != nil {
			return err
		}
		found, err := downloadModule(ctx, dir, module+"@"+version)
		if err != nil {
			return err
		}
		program, err := os.ReadFile(filepath.Join(found.Dir, "main.go"))
		if err != nil {
			return err
		}
		var lines []string
		for line := range strings.Lines(string(program)) {
			if !strings.Contains(line, "/pkg/backend/tencentvpc") && !strings.Contains(line, "/pkg/backend/udp") {
				lines = append(lines, line)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(strings.Join(lines, "")), 0o644); err != nil {
			return err
		}
		_, err = goTool(ctx, dir, "build", "-o", target, "-ldflags", flags, ".")
		return err
	})
	return filepath.Join(bin, name), err
}

// LetFlannel grants flanneld the rights from its own manifest.
func (c *ControlPlane) LetFlannel(ctx context.Context) error {
	const rbac, group = "/apis/rbac.authorization.k8s.io/v1/", "rbac.authorization.k8s.io"
	core := []string{""}
	return errors.Join(
		c.Create(ctx, rbac+"clusterroles", object{"metadata": object{"name": flannelUser}, "rules": []object{
			{"apiGroups": core, "resources": []string{"pods"}, "verbs": []string{"get"}},
			{"apiGroups": core, "resources": []string{"nodes"}, "verbs": []string{"get", "list", "watch"}},
			{"apiGroups": core, "resources": []string{"nodes/status"}, "verbs": []string{"patch"}},
		}}),
		c.Create(ctx, rbac+"clusterrolebindings", object{
			"metadata": object{"name": flannelUser},
			"roleRef":  object{"apiGroup": group, "kind": "ClusterRole", "name": flannelUser},
			"subjects": []object{{"apiGroup": group, "kind": "User", "name": flannelUser}},
		}),
	)
}

// installFlannel adds flanneld, its credentials and its unit to a tree.
func (m Nodes) installFlannel(tree string) error {
	credentials, err := m.Plane.ca.writeUserKubeconfig("flannel", Server)
	return errors.Join(
		err,
		vm.WriteAll(rootfs, "flannel", tree),
		copyFile(m.Flannel, filepath.Join(tree, "usr/local/bin/flanneld"), 0o755),
		copyFile(credentials, filepath.Join(tree, "etc/kubernetes/flannel.kubeconfig"), 0o600),
		vm.Link("/etc/systemd/system/flanneld.service", filepath.Join(tree, "etc/systemd/system/multi-user.target.wants/flanneld.service")),
	)
}
