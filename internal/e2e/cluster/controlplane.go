package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"nodegate/internal/host/qemu"
)

// The addresses of a cluster. They are seen in its own namespaces only, so that every cluster has the same.
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

// ControlPlane is etcd and kube-apiserver in a Space of their own, with a bridge that nodes are connected to; and
// kube-controller-manager, once machines are to join.
type ControlPlane struct {
	*Space
	API *API
	Bin string // the folder with Kubernetes' programs
	Dir string // certificates, kubeconfigs, logs

	ProxyBin string // the folder with the next ProxyNode's kube-proxy; empty: Bin

	Kubeconfig      string // of the administrator
	ProxyKubeconfig string // of kube-proxy
	BootKubeconfig  string // of a kubelet that is not known yet

	ca       *authority
	programs map[string]*qemu.Process
	mu       sync.Mutex
	spaces   []*Space // of the nodes
}

// Start starts a control plane with the programs in bin. Its files go to dir. The caller closes it.
func Start(ctx context.Context, bin, dir string) (*ControlPlane, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	space, err := NewSpace()
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{Space: space, Bin: bin, Dir: dir, programs: map[string]*qemu.Process{}}
	if err := c.start(ctx); err != nil {
		err = fmt.Errorf("starting a control plane: %w\n%s", err, c.Logs())
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context) error {
	if err := c.credentials(); err != nil {
		return err
	}
	script := `ip link add "$1" type bridge; ip address add "$2/24" dev "$1"; ip link set "$1" up`
	if err := c.Shell(ctx, script, bridge, Address); err != nil {
		return err
	}
	if err := c.run("etcd", "etcd", "--data-dir=/run/etcd", "--listen-client-urls=http://127.0.0.1:2379",
		"--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380"); err != nil {
		return err
	}
	if err := c.run("kube-apiserver", c.program("kube-apiserver"), c.apiserver()...); err != nil {
		return err
	}
	return c.untilReady(ctx)
}

// LetNodesJoin starts kube-controller-manager, which signs the certificates of kubelets, and lets them ask for one. flags
// are kube-controller-manager's, beside its own.
func (c *ControlPlane) LetNodesJoin(ctx context.Context, flags ...string) error {
	if err := c.run("kube-controller-manager", c.program("kube-controller-manager"), append(c.controllers(), flags...)...); err != nil {
		return err
	}
	return c.makeToken(ctx)
}

func (c *ControlPlane) program(name string) string { return filepath.Join(c.Bin, name) }

// credentials writes certificates and kubeconfigs.
func (c *ControlPlane) credentials() (err error) {
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
		file, err := c.ca.kubeconfig(name, Server)
		if err != nil {
			return err
		}
		if field != nil {
			*field = file
		}
	}
	if c.BootKubeconfig, err = c.ca.tokenKubeconfig("bootstrap", Server, bootstrapToken); err != nil {
		return err
	}
	c.API, err = c.ca.api("admin", Server, c.Space)
	return err
}

func (c *ControlPlane) apiserver() []string {
	return []string{
		"--etcd-servers=http://127.0.0.1:2379", "--service-cluster-ip-range=" + ServiceCIDR,
		"--bind-address=0.0.0.0", "--advertise-address=" + Address, "--secure-port=6443", "--allow-privileged=true",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth=true",
		"--client-ca-file=" + c.ca.file("ca.crt"),
		"--tls-cert-file=" + c.ca.file("apiserver.crt"), "--tls-private-key-file=" + c.ca.file("apiserver.key"),
		"--kubelet-client-certificate=" + c.ca.file("admin.crt"), "--kubelet-client-key=" + c.ca.file("admin.key"),
		"--service-account-key-file=" + c.ca.file("accounts.key"), "--service-account-signing-key-file=" + c.ca.file("accounts.key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--profiling=false",
	}
}

func (c *ControlPlane) controllers() []string {
	kubeconfig := c.ca.file("controllers.kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--use-service-account-credentials=true", "--root-ca-file=" + c.ca.file("ca.crt"),
		"--service-account-private-key-file=" + c.ca.file("accounts.key"),
		"--cluster-signing-cert-file=" + c.ca.file("ca.crt"), "--cluster-signing-key-file=" + c.ca.file("ca.key"),
		"--allocate-node-cidrs=false", "--service-cluster-ip-range=" + ServiceCIDR,
		"--leader-elect=false", "--bind-address=127.0.0.1", "--profiling=false",
	}
}

// run starts a program that stays; what it says goes to NAME.log.
func (c *ControlPlane) run(name, program string, args ...string) error {
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

// Close ends the cluster, nodes and all. It may be called more than once.
func (c *ControlPlane) Close() {
	if c.API != nil {
		c.API.close()
	}
	for _, s := range c.spaces {
		s.Close()
	}
	c.Space.Close()
}

// Logs is the end of each program's log: what to look at where the control plane does not do what it should.
func (c *ControlPlane) Logs() string {
	logs, _ := filepath.Glob(filepath.Join(c.Dir, "*.log")) // the pattern is right
	var all strings.Builder
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			text = []byte(err.Error())
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Fprintf(&all, "--- %s\n%s\n", filepath.Base(log), strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
	return all.String()
}
