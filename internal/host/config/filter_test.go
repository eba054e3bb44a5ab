package config

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestFilterCanaries plants a canary at each position of a file of every kind that can hold a
// secret, among them keys that no list names, and finds none in what a snapshot holds. The
// positions are marked with @.
func TestFilterCanaries(t *testing.T) {
	keys := []string{"config", "node-ip", "kubeconfig", "cloud-provider", "feature-gates", "token", "api-token", "manifest-url-header", "unknown"}
	var flags, fields strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&flags, "--%s=@ --%s @ --%s @=@,@ -x @ -p@ @ ", k, k, k)
	}
	words := flags.String()
	for _, f := range []string{
		"apiVersion", "kind", "address", "cgroupDriver", "featureGates.*", "memorySwap.swapBehavior", "resolvConf", "shutdownGracePeriod", "mode",
		"shutdownGracePeriodByPodPriority.[].shutdownGracePeriodSeconds", "conntrack.maxPerCore", "nodePortAddresses.[]", "ipvs.excludeCIDRs.[]",
		"current-context", "contexts.[].name", "contexts.[].context.cluster", "clusters.[].cluster.certificate-authority-data",
		"clusters.[].cluster.server", "users.[].name", "users.[].user.exec.command", "users.[].user.exec.interactiveMode",
		"unknown", "staticPodURLHeader.Authorization.[]", "users.[].user.token", "users.[].user.client-key-data",
		"users.[].user.client-certificate-data", "users.[].user.client-certificate", "datastore-endpoint", "token", "kube-proxy-arg.[]",
		"providers.[].name", "providers.[].env.[].value", "spec.containers.[].args.[]",
	} {
		parts := strings.Split(f, ".")
		line := ""
		for _, p := range parts {
			p = strings.NewReplacer("**", "memory.available", "*", "cpu").Replace(p)
			if p == "[]" {
				line += "- "
				continue
			}
			fields.WriteString(line + p + ":\n")
			line = strings.Repeat(" ", len(line)+1)
		}
		fields.WriteString(line + "\"@\"\n---\n")
	}
	ini := func(keys ...string) string {
		text := "# @\n@ @\n[@\n"
		for _, section := range []string{"Service", "Unit", "Network", "Link", "connection", "device", "main", "keyfile", "WireGuard", "X"} {
			text += "[" + section + "]\n; @\n@\n"
			for _, k := range append(keys, "Description", "PrivateKey", "password", "IPForward", "ManageForeignRoutes", "managed", "psk") {
				text += k + "=@\n" + k + " = \"@\" @ \\\n @\n"
			}
		}
		return text
	}
	const broken = "\n  x: [@\n @: {@"
	planted := 0
	var all []string
	for _, texts := range [][]string{
		{strings.ReplaceAll("/usr/bin/kube-proxy "+words, " ", "\x00"), "mysql\x00-p@\x00@", "nginx: @", "k3s\x00" + "--token=@"},
		{"root=@ rd.iscsi.password=@ @ nodegate=off"},
		{ini("ExecStartPre", "Environment", "EnvironmentFile", "LoadCredential"), "[Service]\nExecStart=/usr/bin/kubelet " + words +
			"\nEnvironment=\"A=" + words + "\" B=@ 'C=@ @'\nExecStartPre=/bin/sh -c 'echo @'\n"},
		{"A=@\nB=\"@ @\"\nC='" + words + "'\nD=--token=@\n# @\n@ @\n@=x\nexport E=@\n"},
		{ini()},
		{ini()},
		{"# @\n[main]\nsummary=@\n@\n[variables]\nx=@\n  @\n[script]\nscript=${i:PROFILE_DIR}/@\n[sysctl]\ntoken=@\n@=@\n"},
		{"@ @\n"},
		{"# @\noptions m key=@ @ \\\n @\ninstall m /bin/sh -c @\ninstall m /bin/true # @\nremove m @\n@ @ @\nalias a @\nblacklist a @\n"},
		{"# @\n; @\n@\npassword = @\nx.y = @\n"},
		{"//host/share /mnt cifs username=@,password=@,@,credentials=@ 0 0\nhttps://u:@@host /m davfs @\nUUID=@ / ext4 data=@,mode=@ @ @\n" +
			"@\n# @\ntmpfs /t tmpfs size=@ 0 0\n"},
		{"# @\nACTION==\"add\", RUN+=\"@\", ENV{@}=\"@\", ATTR{x}==\"@\"\n@\nIMPORT{program}=\"@ \\\n@\"\n"},
		{"E:ID=@\nS:@\n@\nE:NM_UNMANAGED=@\n"},
		{"# @\nsearch @\nnameserver @\noptions @\n@"},
		{"2026-01-02T03:04:05.6Z stderr F @ incompatible: settype hash:net with revision 7 not supported by userspace @\n@\n" +
			"2026-01-02T03:04:05.6Z incompatible: settype @ with revision 7 not supported by userspace\n"},
		append(strings.Split(fields.String(), "---\n"), "a: &a @\nb: *a\n# @\n? {c: @}\n: @\n<<: {token: @}\n!x d: !y @\n", broken, "@", "- @", "failSwapOn: |\n  @\n"),
		append(strings.Split(fields.String(), "---\n"), "kind: KubeProxyConfiguration\n"+broken, "kind: KubeProxyConfiguration\nmode: @\n",
			"kind: Pod\nspec: {containers: [{args: ["+words+"], env: [{value: @}]}]}\n"),
		append(strings.Split(fields.String(), "---\n"), broken, "kube-proxy-arg: [proxy-mode=@, @, x=@]\ntoken: @\n", "kube-proxy-arg+: @\n"),
		append(strings.Split(fields.String(), "---\n"), broken, `{"users": [{"user": {"token": "@", "exec": {"env": [{"value": "@"}]}}}]}`),
		{`{"name": "@", "type": "@", "kubernetes": {"k8s_auth_token": "@"}, "plugins": [{"type": "@", "x": "@"}, "@"], "X": ["@"]}`, `{"name": @`},
		{"@\n-----BEGIN PRIVATE KEY-----\n@\n-----END PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\nX: @\n\nAAAA\n-----END CERTIFICATE-----\n@"},
		{"# @\n[@\n[zram0]\nzram-size = @\nfs-type=@\nwriteback-device=@\n@\n"},
		{"FLANNEL_MTU=@\nFLANNEL_NETWORK=@\n# @\n@\nFLANNEL_MTU=1450 @\n"},
		{"[Mount]\nWhat=//host/@\nWhere=/mnt\nType=cifs\nOptions=username=@,password=@,@,noexec\n"},
		{"@\ntoken: @\npassword=@\n-----BEGIN PRIVATE KEY-----\n@\n-----END PRIVATE KEY-----\nssh-rsa @ @\nInitiatorName=@\n" +
			"(holds: token) @\nssh-keygen @\nK3S_TOKEN='@'\nkubeadm join --token abcdef.0123456789abcdef @\n"},
		{"@"},
	} {
		all = append(all, texts...)
	}
	for _, mark := range []string{"CaNaRy%dx", "canary%dx", "x-%d/canaryx", "Canary.%dX"} {
		for _, text := range all {
			n := 0
			text = regexp.MustCompile("@").ReplaceAllStringFunc(text, func(string) string {
				n++
				return fmt.Sprintf(mark, n)
			})
			planted += n
			for kind := range TraitsOnly {
				if kind == Policy || kind == Identity {
					continue
				}
				shown := new(Filter).Show(kind, "/unknown", NewText(0o600, []byte(text)), false)
				if found := regexp.MustCompile("(?i)[^\n]*canary[^\n]*").FindAll(shown, -1); found != nil {
					t.Errorf("kind %d: %q of\n%.300s", kind, found, text)
				}
			}
		}
	}
	if planted < 1000 {
		t.Errorf("only %d canaries", planted)
	}
	t.Logf("%d canaries", planted)
}

// TestReveal: a program gets the values that a recording hides from the checks.
func TestReveal(t *testing.T) {
	d := &Filter{}
	for _, value := range []string{"S3cret", "-pS3cret", "a b", "", "S3cret"} {
		if hidden := d.Hide(value); d.Reveal("--x="+hidden) != "--x="+value || strings.Contains(hidden, "S3cret") {
			t.Errorf("%q is hidden as %q", value, hidden)
		}
	}
	if d.Hide("S3cret") != "left-out-1" || d.Reveal("left-out-99") != "left-out-99" {
		t.Error("placeholders are not stable")
	}
}
