package kubelet

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/internal/host/service"
	"nodegate/policy"
)

// kubeconfig: kubelet exits if client-go rejects its kubeconfig, or if it lacks one and must ask the API server who may call it.
func kubeconfig() checks.Problem {
	return checks.Problem{
		Name: "kubelet.kubeconfig", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block, Later: true,
		Detects: "kubelet's kubeconfig has no usable context, server or credential, or names missing files; or kubelet has no kubeconfig, and " +
			"its configuration delegates authentication or authorisation to the API server.",
		Symptom: "kubelet restarts forever: \"invalid kubeconfig: invalid configuration\", \"unable to read certificate-authority\", \"context " +
			"... does not exist\" or \"no client provided, cannot use webhook authentication\".",
		How: "Reads the file of --kubeconfig as client-go does: the context of current-context must exist, with its cluster; the " +
			"cluster needs a server; certificate-authority, client-certificate, client-key and tokenFile must exist, and the authority must " +
			"contain a certificate; an exec plugin needs a command and a known apiVersion. The check only warns if the user or the plugin's " +
			"program does not exist: kubelet starts, and never joins. While the file is missing or invalid and that of " +
			"--bootstrap-kubeconfig exists, the latter is judged. A missing file and an expired certificate are reported by " +
			"kubelet.certificate. Without --kubeconfig, authentication.webhook.enabled must be false and authorization.mode " +
			"AlwaysAllow, which a configuration file must set. Skipped if the command line of kubelet's unit is unknown, and before kubeadm join. " +
			"Whether a private key belongs to its certificate is not judged.",
		Remedy:  "correct the kubeconfig, or join the node again",
		Ref:     "https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/",
		Inspect: inspectKubeconfig,
	}
}

func inspectKubeconfig(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.Passing("a kubeconfig with which kubelet starts")
	k, known, err := readConfigAndCommand(h, &s)
	if !known {
		return s, err
	}
	if before, err := isBeforeJoin(h, k); before || err != nil {
		s.Skip = notJoined
		return s, err
	}
	name, bootstrap := k.Flags["kubeconfig"].Value, k.Flags["bootstrap-kubeconfig"].Value
	if name == "" {
		switch files, err := inspectConfiguration(ctx, h, p); {
		case err != nil:
			s.Cause = "kubelet.config"
			return s, err
		case !files.Pass || files.Evidence != nil:
			s.Skip = "kubelet's configuration is not readable yet, see kubelet.config"
			return s, nil
		}
		judgeDelegation(k, &s)
		return s, nil
	}
	mends, err := mendsOf(h)
	if err != nil {
		return s, err
	}
	fault, missing, err := judgeKubeconfig(h, mends, name)
	if err != nil {
		return s, err
	}
	if bootstrap != "" && (missing || fault.why != "" && !fault.minor) {
		exists, err := h.Files.Exists(bootstrap)
		switch {
		case err != nil:
			return s, err
		case exists: // isClientConfigStillValid: kubelet then writes a new kubeconfig
			name = bootstrap
			if fault, missing, err = judgeKubeconfig(h, mends, name); err != nil {
				return s, err
			}
		}
	}
	at := mends.Writes(name)
	switch {
	case at != "" && (missing || fault.why != ""):
		s.Evidence = []checks.Evidence{checks.Seen(at, "writes "+name+" before kubelet starts")}
	case missing, fault.empty && bootstrap != "":
		s.Skip = name + " is missing or empty, see kubelet.certificate"
	case fault.why != "":
		s.Evidence = []checks.Evidence{checks.Seen(name, fault.why)}
		s.Differs(fault.why, "")
		s.Minor = fault.minor
	}
	return s, nil
}

// judgeDelegation judges a kubelet without a kubeconfig (BuildAuthn and BuildAuthz in cmd/kubelet/app/auth.go). Both settings
// delegate by default, but only in a configuration file (applyLegacyDefaults in cmd/kubelet/app/options/options.go).
func judgeDelegation(k config.Kubelet, s *checks.State) {
	authn, authz := k.Values["authentication.webhook.enabled"], k.Values["authorization.mode"]
	delegates := k.Flags["config"].Value != ""
	var wrong []string
	for _, d := range []struct {
		setting config.KubeletValue
		on      bool
		text    string
	}{
		{authn, authn.Value == "true" || authn.Value == "" && delegates, "authentication.webhook.enabled"},
		{authz, authz.Value == "Webhook" || authz.Value == "" && delegates, "authorization.mode Webhook"},
	} {
		if !d.on {
			continue
		}
		wrong = append(wrong, d.text)
		if d.setting.Value != "" {
			s.Evidence = append(s.Evidence, checks.Seen(d.setting.From.Source, d.setting.From.Text))
		} else {
			s.Evidence = append(s.Evidence, checks.Seen(k.Flags["config"].Value, "does not set "+d.text+", which is the default"))
		}
	}
	if wrong != nil {
		s.Differs("no --kubeconfig, but "+strings.Join(wrong, " and "), "find out why --kubeconfig is not on kubelet's command line (`systemctl "+
			"cat kubelet`); an Environment= value that continues on the next line needs a backslash")
	}
}

// kubeFault is why client-go rejects a kubeconfig.
type kubeFault struct {
	why   string
	minor bool // kubelet starts, but cannot authenticate
	empty bool // the file cannot be read as a kubeconfig
}

// judgeKubeconfig judges one file as clientcmd's ClientConfig and rest.HTTPClientFor do.
func judgeKubeconfig(h *host.Host, mends service.Mend, name string) (fault kubeFault, missing bool, err error) {
	text, missing, err := readNamed(h, config.Kubeconfig, name)
	if err != nil || missing {
		return fault, missing, err
	}
	file, bad := config.ParseKubeClient(text)
	if bad != nil && bytes.Contains(text, []byte("left-out")) { // an older snapshot leaves out values that are not text
		return fault, false, fmt.Errorf("reading %s: %w", name, host.ErrNotRecorded)
	}
	if bad != nil {
		return kubeFault{why: strings.Join(strings.Fields(name+" is not a kubeconfig: "+bad.Error()), " "), empty: true}, false, nil
	}
	chosen, bad := file.Choose()
	noUser := errors.Is(bad, config.ErrNoUser)
	switch {
	case bad != nil && !noUser:
		return kubeFault{why: bad.Error()}, false, nil
	case len(bytes.TrimSpace(text)) == 0:
		return kubeFault{why: name + " is empty", empty: true}, false, nil
	}
	j := kubeJudge{h: h, mends: mends, dir: path.Dir(name)}
	why, err := j.judgeCluster(chosen)
	if err == nil && why == "" {
		why, err = j.judgeUser(chosen)
	}
	if err != nil || why != "" {
		return kubeFault{why: why}, false, err
	}
	if noUser {
		return kubeFault{why: bad.Error(), minor: true}, false, nil
	}
	why, err = j.findPlugin(chosen)
	return kubeFault{why: why, minor: true}, false, err
}

// readNamed reads a file that may be missing.
func readNamed(h *host.Host, kind config.Kind, name string) (text []byte, missing bool, err error) {
	text, err = config.As(h.Files, kind).ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true, nil
	}
	return text, false, err
}

type kubeJudge struct {
	h     *host.Host
	mends service.Mend
	dir   string // of the kubeconfig: relative paths start there
}

func (j *kubeJudge) resolve(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(j.dir, name)
}

// findMissing returns the first of some files that does not exist, and its key.
func (j *kubeJudge) findMissing(files [][2]string) (why string, err error) {
	for _, f := range files {
		if f[1] == "" {
			continue
		}
		_, missing, err := readNamed(j.h, config.Certificate, j.resolve(f[1]))
		if err != nil {
			return "", err
		}
		if missing && j.mends.Writes(j.resolve(f[1])) == "" {
			return fmt.Sprintf("%s %s does not exist", f[0], j.resolve(f[1])), nil
		}
	}
	return "", nil
}

// judgeCluster follows validateClusterInfo, DefaultServerURL and TLSConfigFor.
func (j *kubeJudge) judgeCluster(c config.KubeChoice) (string, error) {
	in := c.Cluster
	switch {
	case in.Server == "" && c.ClusterName == "":
		return "current-context is not set, or its context names no cluster", nil
	case in.Server == "":
		return fmt.Sprintf("cluster %q has no server", c.ClusterName), nil
	case in.Authority != "" && in.AuthorityData != "":
		return fmt.Sprintf("cluster %q has both certificate-authority and certificate-authority-data", c.ClusterName), nil
	case in.Insecure && in.Authority+in.AuthorityData != "":
		return fmt.Sprintf("cluster %q has both a certificate authority and insecure-skip-tls-verify", c.ClusterName), nil
	}
	if u, err := url.Parse(in.Server); err != nil || u.Scheme == "" || u.Host == "" {
		if u, err = url.Parse("https://" + in.Server); err != nil || u.Path != "" && u.Path != "/" {
			return fmt.Sprintf("the server of cluster %q is neither a URL nor host:port", c.ClusterName), nil
		}
	}
	if in.Proxy != "" {
		if u, err := url.Parse(in.Proxy); err != nil || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
			return fmt.Sprintf("proxy-url of cluster %q is not the URL of a proxy", c.ClusterName), nil
		}
	}
	if why, err := j.findMissing([][2]string{{"certificate-authority", in.Authority}}); why != "" || err != nil {
		return why, err
	}
	authority, from := []byte(nil), "certificate-authority-data"
	switch {
	case config.IsLeftOut(in.AuthorityData):
		return "", nil
	case in.AuthorityData != "":
		var bad error
		if authority, bad = base64.StdEncoding.DecodeString(in.AuthorityData); bad != nil {
			return from + " is not base64", nil
		}
	case in.Authority != "":
		from = j.resolve(in.Authority)
		var err error
		if authority, _, err = readNamed(j.h, config.Certificate, from); err != nil {
			return "", err
		}
	default:
		return "", nil
	}
	if len(authority) == 0 { // HasCA is false: the system's authorities
		return "", nil
	}
	if _, bad := readChain(authority, from); bad != nil {
		return bad.Error(), nil
	}
	return "", nil
}

// judgeUser follows validateAuthInfo, getUserIdentificationPartialConfig and newAuthenticator.
func (j *kubeJudge) judgeUser(c config.KubeChoice) (string, error) {
	u := c.User
	if u.Certificate+u.CertificateData != "" {
		switch {
		case u.Certificate != "" && u.CertificateData != "":
			return fmt.Sprintf("user %q has both client-certificate and client-certificate-data", c.UserName), nil
		case u.Key != "" && u.KeyData != "":
			return fmt.Sprintf("user %q has both client-key and client-key-data", c.UserName), nil
		case u.Key+u.KeyData == "":
			return fmt.Sprintf("user %q has a certificate and no client-key", c.UserName), nil
		}
		if why, err := j.findMissing([][2]string{{"client-certificate", u.Certificate}, {"client-key", u.Key}}); why != "" || err != nil {
			return why, err
		}
		if u.CertificateData != "" {
			decoded, bad := base64.StdEncoding.DecodeString(u.CertificateData)
			if bad == nil {
				_, bad = readChain(decoded, "client-certificate-data")
			}
			if bad != nil {
				return "client-certificate-data is not usable: " + bad.Error(), nil
			}
		}
	}
	plain := strings.HasPrefix(c.Cluster.Server, "http://") // then client-go reads no credential
	if u.Token == "" && !plain {
		if why, err := j.findMissing([][2]string{{"tokenFile", u.TokenFile}}); why != "" || err != nil {
			return why, err
		}
	}
	if u.Token != "" && u.Username+u.Password != "" {
		return fmt.Sprintf("user %q has both a token and a password", c.UserName), nil
	}
	if u.Exec == nil || config.IsLeftOut(u.Exec.APIVersion) {
		return "", nil
	}
	const group = "client.authentication.k8s.io/"
	version, known := strings.CutPrefix(u.Exec.APIVersion, group)
	switch {
	case u.AuthProvider != nil:
		return fmt.Sprintf("user %q has both auth-provider and exec", c.UserName), nil
	case u.Exec.Command == "":
		return fmt.Sprintf("exec of user %q has no command", c.UserName), nil
	case !known || !slices.Contains([]string{"v1", "v1beta1", "v1alpha1"}, version):
		return fmt.Sprintf("exec of user %q has apiVersion %q; known versions: %sv1 and v1beta1", c.UserName, u.Exec.APIVersion, group), nil
	case u.Exec.InteractiveMode == "" && version == "v1":
		return fmt.Sprintf("exec of user %q has no interactiveMode", c.UserName), nil
	case !slices.Contains([]string{"", "Never", "IfAvailable", "Always"}, u.Exec.InteractiveMode):
		return fmt.Sprintf("exec of user %q has interactiveMode %q; it must be Never, IfAvailable or Always", c.UserName,
			u.Exec.InteractiveMode), nil
	}
	return "", nil
}

// findPlugin returns why the program of an exec plugin cannot be started. A certificate or token takes precedence over the plugin. A
// name without a slash is looked up in systemd's default search path, unless kubelet's unit may set another one.
func (j *kubeJudge) findPlugin(c config.KubeChoice) (why string, err error) {
	u := c.User
	if u.Exec == nil || u.Certificate+u.CertificateData+u.Token+u.TokenFile+u.Username != "" {
		return "", nil
	}
	names := []string{j.resolve(u.Exec.Command)}
	if !strings.Contains(u.Exec.Command, "/") {
		unit, err := service.Read(j.h.Files, "kubelet.service")
		if err != nil || slices.ContainsFunc(unit.Entries, func(e config.Entry) bool { return strings.Contains(e.Key, "Environment") }) {
			return "", err
		}
		names = nil
		for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
			names = append(names, dir+"/"+u.Exec.Command)
		}
	}
	for _, name := range names {
		if exists, err := j.h.Files.Exists(name); err != nil || exists {
			return "", err
		}
	}
	return fmt.Sprintf("the credential plugin %s does not exist", u.Exec.Command), nil
}
