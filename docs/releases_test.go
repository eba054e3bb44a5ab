package docs_test

import (
	"os"
	"path/filepath"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// currentRelease has the files that RECORD=1 writes; CHANGELOG.md names the version.
const currentRelease = "../cmd/nodegate/testdata/releases/0.1.0"

// writesFiles writes a file of each kind that a verb reads.
const writesFiles = `hostname node17
mkdir -p tree/etc/systemd/system run
printf "%s\n" "[Service]" ExecStart=/usr/bin/true >tree/etc/systemd/system/kubelet.service
[ -e /dev/console ] || { mount -t tmpfs -o dev tmpfs /dev; mknod /dev/null c 1 3; : >/dev/console; } # a container without one
mkfifo ../console && exec 3<>../console; cat <&3 >console.log & reader=$!
mount --bind ../console /dev/console
nodegate check --policy hold.hcl --stage boot -o check.json || :
nodegate snapshot --policy watched.hcl --stage all -o snapshot.json
! nodegate gate --budget 10ms --policy hold.hcl && cp /run/nodegate/report.json gate.json
for i in $(seq 600); do ! grep -q nodegate-report/1 console.log || break; sleep 0.1; done; kill $reader; grep -q nodegate-report/1 console.log
nodegate apply --policy watched.hcl -o apply.json || :
timeout 3 nodegate watch --policy watched.hcl --interval 1s || :
grep -q "\"services\": 0" /run/nodegate/watch.json # of the audit
cp /run/nodegate/watch.json watch.json; cp /run/nodegate/changes.jsonl run/
nodegate status -f json >status.json || :
nodegate audit --rules rules.txt -o audit.json || : ; rm rules.txt
nodegate export files --policy watched.hcl -o files
{ printf "%s\n" "apiVersion: kops.k8s.io/v1alpha2" "kind: InstanceGroup"; nodegate export kops --policy watched.hcl; } >kops.yaml
nodegate policy import files/etc/sysctl.d -o imported.hcl
nodegate install --root tree --policy watched.hcl
sed -i "s/$(uname -r)/6.1.0-28-cloud-amd64/" *.json
: >tree/usr/local/bin/nodegate # the program itself is large
`

// readsFiles has each call that reads such a file, as the documents give it.
func readsFiles() []string {
	calls := []string{
		"nodegate status --file watch.json", "nodegate status --file status.json", "nodegate report --console console.log",
		"nodegate check --policy watched.hcl --snapshot snapshot.json", "nodegate snapshot --show snapshot.json",
		"nodegate preview --policy watched.hcl snapshot.json", "nodegate preview --policy hold.hcl snapshot.json",
		"mount -t tmpfs tmpfs /run && mkdir /run/nodegate && cp run/* /run/nodegate && nodegate revert --dry-run",
		"nodegate lint --kops kops.yaml", "nodegate lint imported.hcl", "nodegate fmt --check imported.hcl && echo done", "nodegate check --root tree",
		"nodegate lint tree/etc/nodegate/policy.d", "nodegate policy show --effective --root tree",
		"nodegate install --root tree --policy imported.hcl --force", "nodegate uninstall --root tree --force && echo done",
	}
	for _, file := range []string{"check.json", "gate.json", "apply.json", "watch.json", "status.json", "audit.json"} {
		calls = append(calls, "nodegate report "+file)
	}
	return calls
}

// TestReadsWhatItWrites: each verb reads the files that the documents give to it, those of this build and those of each release.
func TestReadsWhatItWrites(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "unshare")
	c := newContractor(t, "")
	c.inputs()
	require.NoError(t, os.WriteFile(c.dir+"/watched.hcl", []byte("sysctl \"net.ipv4.ip_forward\" {\n  value  = 1\n  reason = \"r\"\n}\naudit {}\n"), 0o600))
	out, code := c.scratch(`exec 2>&1; mkdir made; cp watched.hcl hold.hcl rules.txt made; cd made
		unshare --uts sh -euc '` + writesFiles + `'`)
	require.True(t, code == 0, "%s", out)
	if os.Getenv("RECORD") != "" {
		require.NoError(t, os.RemoveAll(currentRelease))
		require.NoError(t, os.CopyFS(currentRelease, os.DirFS(c.dir+"/made")))
	}
	releases, err := filepath.Glob("../cmd/nodegate/testdata/releases/*")
	require.NoError(t, err)
	assert.True(t, len(releases) != 0, "no release's files")
	for _, dir := range append(releases, c.dir+"/made") {
		require.NoError(t, os.CopyFS(c.dir+"/"+filepath.Base(dir)+"-read", os.DirFS(dir)))
		for _, call := range readsFiles() {
			out, code := c.scratch("exec 2>&1; cd " + filepath.Base(dir) + "-read; " + call)
			assert.True(t, code >= 0 && code != 2 && code <= 3 && len(out) != 0, "%s: %s: exit status %d\n%s", dir, call, code, out)
		}
	}
}
