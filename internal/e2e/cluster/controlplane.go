package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"nodegate/internal/e2e/qemu"
)

// These are the addresses of a cluster. They are visible only in its namespaces, so every cluster uses the same.
const (
	network     = "10.77.0"
	Address     = network + ".1"
	Server      = "https://" + Address + ":6443"
	ServiceCIDR = "10.96.0.0/16"
	PodCIDR     = "10.244.0.0/16"
	bridge      = "nodes"

	bootstrapToken = "nodega.0123456789abcdef"
)

const startTime = 2 * time.Minute

// ControlPlane consists of etcd and kube-apiserver in their own Space, with a bridge to which nodes are connected. Once machines may
// join, it also has kube-controller-manager.
type ControlPlane struct {
	*Space
	API *API
	Bin string // directory with Kubernetes' programs
	Dir string // directory for certificates, kubeconfigs and logs

	ProxyBin string // directory with kube-proxy for the next ProxyNode; empty: Bin

	Kubeconfig      string // the administrator's
	ProxyKubeconfig string // kube-proxy's
	BootKubeconfig  string // for a kubelet that has not joined yet

	ca       *authority
	programs map[string]*qemu.Process
	mu       sync.Mutex
	spaces   []*Space // the Spaces of nodes
}

// Start starts a control plane with the programs in bin, and writes its files to dir. The caller closes it.
func Start(ctx context.Context, bin, dir string) (*ControlPlane, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	space, err := NewSpace()
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{Space: space, Bin: bin, Dir: dir, programs: map[string]*qemu.Process{}}
	if err := c.startPrograms(ctx); err != nil {
		err = fmt.Errorf("starting a control plane: %w\n%s", err, c.Logs())
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *ControlPlane) startPrograms(ctx context.Context) error {
	if err := c.writeCredentials(); err != nil {
		return err
	}
	script := `ip link add "$1" type bridge; ip address add "$2/24" dev "$1"; ip link set "$1" up`
	if err := c.Shell(ctx, script, bridge, Address); err != nil {
		return err
	}
	if err := c.startProgram("etcd", "etcd", "--data-dir=/run/etcd", "--listen-client-urls=http://127.0.0.1:2379",
		"--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380"); err != nil {
		return err
	}
	if err := c.startProgram("kube-apiserver", c.programPath("kube-apiserver"), c.apiserver()...); err != nil {
		return err
	}
	return c.untilReady(ctx)
}

// LetNodesJoin starts kube-controller-manager, which signs kubelets' certificates, and allows kubelets to request one. flags are added
// to kube-controller-manager's.
func (c *ControlPlane) LetNodesJoin(ctx context.Context, flags ...string) error {
	if err := c.startProgram("kube-controller-manager", c.programPath("kube-controller-manager"), append(c.controllers(),
		flags...)...); err != nil {
		return err
	}
	return c.makeToken(ctx)
}

func (c *ControlPlane) programPath(name string) string { return filepath.Join(c.Bin, name) }

// writeCredentials writes certificates and kubeconfigs.
func (c *ControlPlane) writeCredentials() (err error) {
	if c.ca, err = newAuthority(c.Dir); err != nil {
		return err
	}
	hosts := []string{Address, "127.0.0.1", "10.96.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	err = errors.Join(
		c.ca.issue("apiserver", "kube-apiserver", nil, hosts...),
		c.ca.issue("accounts", "accounts", nil),
		c.ca.issue("admin", "admin", []string{"system:masters"}),
		c.ca.issue("controllers", "system:kube-controller-manager", nil),
		c.ca.issue("proxy", "system:kube-proxy", nil),
		c.ca.issue("flannel", flannelUser, nil),
	)
	if err != nil {
		return err
	}
	for name, field := range map[string]*string{"admin": &c.Kubeconfig, "proxy": &c.ProxyKubeconfig, "controllers": nil} {
		file, err := c.ca.writeUserKubeconfig(name, Server)
		if err != nil {
			return err
		}
		if field != nil {
			*field = file
		}
	}
	if c.BootKubeconfig, err = c.ca.writeTokenKubeconfig("bootstrap", Server, bootstrapToken); err != nil {
		return err
	}
	c.API, err = c.ca.newAPI("admin", Server, c.Space)
	return err
}

func (c *ControlPlane) apiserver() []string {
	return []string{
		"--etcd-servers=http://127.0.0.1:2379", "--service-cluster-ip-range=" + ServiceCIDR,
		"--bind-address=0.0.0.0", "--advertise-address=" + Address, "--secure-port=6443", "--allow-privileged=true",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth=true",
		"--client-ca-file=" + c.ca.filePath("ca.crt"),
		"--tls-cert-file=" + c.ca.filePath("apiserver.crt"), "--tls-private-key-file=" + c.ca.filePath("apiserver.key"),
		"--kubelet-client-certificate=" + c.ca.filePath("admin.crt"), "--kubelet-client-key=" + c.ca.filePath("admin.key"),
		"--service-account-key-file=" + c.ca.filePath("accounts.key"), "--service-account-signing-key-file=" + c.ca.filePath("accounts.key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--profiling=false",
	}
}

func (c *ControlPlane) controllers() []string {
	kubeconfig := c.ca.filePath("controllers.kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--use-service-account-credentials=true", "--root-ca-file=" + c.ca.filePath("ca.crt"),
		"--service-account-private-key-file=" + c.ca.filePath("accounts.key"),
		"--cluster-signing-cert-file=" + c.ca.filePath("ca.crt"), "--cluster-signing-key-file=" + c.ca.filePath("ca.key"),
		"--allocate-node-cidrs=false", "--service-cluster-ip-range=" + ServiceCIDR,
		"--leader-elect=false", "--bind-address=127.0.0.1", "--profiling=false",
	}
}

// startProgram starts a program that keeps running, with its output in NAME.log.
func (c *ControlPlane) startProgram(name, program string, args ...string) error {
	p, err := c.Start(filepath.Join(c.Dir, name+".log"), nil, program, args...)
	if err == nil {
		c.programs[name] = p
	}
	return err
}

// untilReady waits for the API server.
func (c *ControlPlane) untilReady(ctx context.Context) error {
	return Until(ctx, func() error {
		for name, p := range c.programs {
			select {
			case <-p.Ended():
				return Final(fmt.Errorf("%s ended: %w", name, p.Wait()))
			default:
			}
		}
		return c.API.Do(ctx, http.MethodGet, "/readyz", nil, nil)
	})
}

// Close ends the cluster and its nodes. It may be called more than once.
func (c *ControlPlane) Close() {
	if c.API != nil {
		c.API.close()
	}
	for _, s := range c.spaces {
		s.Close()
	}
	c.Space.Close()
}

// Logs returns the end of each program's log, to explain a failure of the control plane. It leaves out the complaint about a ConfigMap
// that no test makes: the API server repeats it each minute.
func (c *ControlPlane) Logs() string {
	logs, _ := filepath.Glob(filepath.Join(c.Dir, "*.log")) // the pattern is valid
	var all strings.Builder
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			text = []byte(err.Error())
		}
		lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(text)), "\n"), func(line string) bool {
			return strings.Contains(line, "extension-apiserver-authentication")
		})
		fmt.Fprintf(&all, "--- %s\n%s\n", filepath.Base(log), strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
	return all.String()
}
