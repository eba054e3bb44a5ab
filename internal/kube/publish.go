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

// Condition is a condition of a Node.
type Condition struct {
	Type    string
	Status  string    // True, False, Unknown
	Reason  string    // one word, CamelCase
	Message string    // without changing times and numbers: a different message causes a write of the Node
	Checked time.Time // its age ends the message; a change of it alone causes no write
}

// Publication is a condition and the place to publish it.
type Publication struct {
	Condition
	Kubeconfig string // "": the Pod's service account
	Node       string // "": the node that the credentials belong to
}

// Publisher keeps one condition of one Node up to date. It writes after a change, and regularly to
// show that it is alive. While the API server does not respond, it retries less and less often; in
// the end the API server receives the latest state.
type Publisher struct {
	plugins *Plugins
	trouble func(string)
	latest  chan Publication
	write   func(context.Context, Publication) error

	written     Publication
	at          time.Time // of the last write
	since       time.Time // start of the current status, as in the API
	node        string    // the node of the credentials, if the API server has reported it
	lastTrouble string
	pause       time.Duration
	retry       time.Time // after a failure no write before this time, even if the condition changes
}

const (
	heartbeat    = 5 * time.Minute
	changePause  = 2 * time.Second  // between two writes if the status changed
	messagePause = time.Minute      // between two writes if only the message changed
	joinPause    = time.Second      // between tries until the Node and its credentials exist
	maxPause     = 30 * time.Second // between tries while the API does not respond, at most
	writeTime    = 10*time.Second + pluginTime
)

// NewPublisher returns a Publisher. It calls trouble, once for each reason, with the reason why it
// cannot publish.
func NewPublisher(run RunPlugin, trouble func(string)) *Publisher {
	p := &Publisher{plugins: NewPlugins(run), trouble: trouble, latest: make(chan Publication, 1)}
	p.write = p.writeToAPI
	return p
}

// Set sets the condition to publish. It never blocks. An empty Type stops publishing.
func (p *Publisher) Set(next Publication) {
	for {
		select {
		case p.latest <- next:
			return
		default:
		}
		select { // drop an older one that is still waiting
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
		due.Reset(p.writeDue(ctx, want))
	}
}

// Last replaces the condition that Run has written, if any. Call it after Run has returned.
func (p *Publisher) Last(ctx context.Context, last Condition) error {
	want := p.written
	if want.Type == "" {
		return nil
	}
	last.Type, want.Condition = want.Type, last
	return p.write(ctx, want)
}

// writeDue writes the condition if a write is due. It returns the time until the next call.
func (p *Publisher) writeDue(ctx context.Context, want Publication) time.Duration {
	if want.Type == "" {
		return heartbeat
	}
	if wait := max(time.Until(p.at.Add(p.pauseAfterWrite(want))), time.Until(p.retry)); wait > 0 {
		return wait
	}
	bounded, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	err := p.write(bounded, want)
	if err == nil {
		p.written, p.at, p.lastTrouble, p.pause = want, time.Now(), "", 0
		return heartbeat
	}
	if ctx.Err() != nil {
		return heartbeat
	}
	if line := "publishing the condition " + want.Type + ": " + err.Error(); line != p.lastTrouble {
		p.lastTrouble = line
		p.trouble(line)
	}
	wait := joinPause
	if !errors.Is(err, fs.ErrNotExist) {
		p.pause = min(max(2*p.pause, joinPause), maxPause)
		wait = p.pause/2 + rand.N(p.pause/2+1)
	}
	p.retry = time.Now().Add(wait)
	return wait
}

// pauseAfterWrite returns the minimum time between the last write and this one.
func (p *Publisher) pauseAfterWrite(want Publication) time.Duration {
	want.Checked = p.written.Checked
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

// writeToAPI writes a condition, and an Event if its status changes.
func (p *Publisher) writeToAPI(ctx context.Context, want Publication) error {
	client, err := p.client(want)
	if err != nil {
		return err
	}
	if client.unverified {
		return errors.New("the kubeconfig has insecure-skip-tls-verify; nodegate does not send a node's credentials to an unverified server")
	}
	defer client.http.CloseIdleConnections() // the next write reads the credentials again, because kubelet rotates them
	node := cmp.Or(want.Node, client.node, p.node)
	if node == "" {
		if node, err = client.ownNode(ctx); err != nil {
			return err
		}
		p.node = node
	}
	first := p.written.Type != want.Type
	was := p.written.Condition
	if first {
		if was, p.since, err = client.readCondition(ctx, node, want.Type); err != nil {
			return err
		}
	}
	now := time.Now()
	since := p.since
	if was.Status != want.Status || since.IsZero() {
		since = now
	}
	dated := want.Condition
	if !want.Checked.IsZero() {
		dated.Message += fmt.Sprintf(" (checked %s ago)", now.Sub(want.Checked).Round(time.Second))
	}
	if err := client.setCondition(ctx, node, dated, now, since); err != nil {
		return err
	}
	p.since = since
	if was.Status != want.Status {
		if err := client.createEvent(ctx, node, want.Condition, now); err != nil {
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

// Reason converts the name of a check into a condition's reason: "sysctl.net.ipv4.ip_forward"
// becomes SysctlNetIpv4IpForward.
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
