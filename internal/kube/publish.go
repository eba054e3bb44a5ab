package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"time"
)

// Condition is what a Node's condition says.
type Condition struct {
	Type    string
	Status  string // True, False, Unknown
	Reason  string // one word, CamelCase
	Message string // without times and numbers that change: a message that differs is a write of the Node
}

// Publication is a condition, and where it is to be published.
type Publication struct {
	Condition
	Kubeconfig string // "": the service account of a Pod
	Node       string // "": the node whose credentials these are
}

// Publisher keeps one condition of one Node as it was last set. It writes when that changes, and once in a while to show that
// it is alive. An API server that does not answer is asked less and less often, and gets the latest state in the end.
type Publisher struct {
	plugins *Plugins
	trouble func(string)
	latest  chan Publication
	write   func(context.Context, Publication) error

	written Publication
	at      time.Time // of the last write
	since   time.Time // of the status, as the API has it
	node    string    // whose credentials these are, where the API server said so
	said    string
	pause   time.Duration
	retry   time.Time     // not before, after a failure: whatever is set meanwhile
	spare   time.Duration // what the API has already is not written again for so long
}

const (
	heartbeat    = 5 * time.Minute
	changePause  = 2 * time.Second  // between two writes where the status changed
	messagePause = time.Minute      // and where only the words did
	joinPause    = time.Second      // until the Node, and its credentials, exist
	mostPause    = 30 * time.Second // while the API does not answer
	writeTime    = 10*time.Second + pluginTime
)

// NewPublisher returns one that tells trouble, once for each, what keeps it from publishing.
func NewPublisher(run RunPlugin, trouble func(string)) *Publisher {
	p := &Publisher{plugins: NewPlugins(run), trouble: trouble, latest: make(chan Publication, 1)}
	p.write = p.toAPI
	return p
}

// Set sets what is to be published. It never waits. A type of "" publishes nothing more.
func (p *Publisher) Set(next Publication) {
	for {
		select {
		case p.latest <- next:
			return
		default:
		}
		select { // an older one, which nobody has taken
		case <-p.latest:
		default:
		}
	}
}

// Run publishes until the context ends.
func (p *Publisher) Run(ctx context.Context) {
	var want Publication
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case want = <-p.latest:
		case <-due.C:
		}
		due.Reset(p.step(ctx, want))
	}
}

// step writes what is due. It returns when to look again.
func (p *Publisher) step(ctx context.Context, want Publication) time.Duration {
	if want.Type == "" {
		return heartbeat
	}
	if wait := max(time.Until(p.at.Add(p.rest(want))), time.Until(p.retry)); wait > 0 {
		return wait
	}
	bounded, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	err := p.write(bounded, want)
	if err == nil {
		p.written, p.at, p.said, p.pause = want, time.Now(), "", 0
		return heartbeat
	}
	if ctx.Err() != nil {
		return heartbeat
	}
	if line := "publishing the condition " + want.Type + ": " + err.Error(); line != p.said {
		p.said = line
		p.trouble(line)
	}
	wait := joinPause
	if !errors.Is(err, fs.ErrNotExist) {
		p.pause = min(max(2*p.pause, joinPause), mostPause)
		wait = p.pause/2 + rand.N(p.pause/2+1)
	}
	p.retry = time.Now().Add(wait)
	return wait
}

// rest returns how long after the last write this one may come.
func (p *Publisher) rest(want Publication) time.Duration {
	switch {
	case p.at.IsZero():
		return 0
	case want == p.written:
		return heartbeat
	case want.Status == p.written.Status && want.Type == p.written.Type:
		return messagePause
	}
	return changePause
}

// toAPI writes a condition, and an Event where its status changes.
func (p *Publisher) toAPI(ctx context.Context, want Publication) error {
	client, err := p.client(want)
	if err != nil {
		return err
	}
	if client.blind {
		return errors.New("the kubeconfig has insecure-skip-tls-verify: a node's credentials are not shown to a server that anybody could be")
	}
	defer client.http.CloseIdleConnections() // the next write reads the credentials anew: kubelet rotates them
	node := cmp.Or(want.Node, client.node, p.node)
	if node == "" {
		if node, err = client.self(ctx); err != nil {
			return err
		}
		p.node = node
	}
	first := p.written.Type != want.Type
	was := p.written.Condition
	if first {
		var written time.Time
		if was, p.since, written, err = client.condition(ctx, node, want.Type); err != nil {
			return err
		}
		if was == want.Condition && time.Since(written) < p.spare {
			return nil
		}
	}
	now := time.Now()
	since := p.since
	if was.Status != want.Status || since.IsZero() {
		since = now
	}
	if err := client.setCondition(ctx, node, want.Condition, now, since); err != nil {
		return err
	}
	p.since = since
	if was.Status != want.Status {
		if err := client.event(ctx, node, want.Condition, now); err != nil {
			p.trouble("writing an Event: " + err.Error()) // the condition is written
		}
	}
	return nil
}

func (p *Publisher) client(want Publication) (*Client, error) {
	if want.Kubeconfig == "" {
		return InCluster()
	}
	return FromKubeconfig(want.Kubeconfig, p.plugins)
}

// Publish writes a condition once, unless the Node has had it for less than four minutes: whoever calls it every minute writes as
// often as a Publisher. It tells what is left out.
func Publish(ctx context.Context, run RunPlugin, want Publication, trouble func(string)) error {
	p := NewPublisher(run, trouble)
	p.spare = heartbeat - time.Minute
	return p.write(ctx, want)
}

// Reason makes a condition's reason of the name of a check: "sysctl.net.ipv4.ip_forward" is SysctlNetIpv4IpForward.
func Reason(check string) string {
	var b strings.Builder
	upper := true
	for _, r := range check {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		switch {
		case !letter:
			upper = true
			continue
		case upper:
			r = []rune(strings.ToUpper(string(r)))[0]
		}
		upper = false
		b.WriteRune(r)
	}
	return fmt.Sprintf("%.128s", b.String())
}
