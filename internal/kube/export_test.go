package kube

import "context"

// Publish writes a condition once.
func Publish(ctx context.Context, run RunPlugin, want Publication, trouble func(string)) error {
	return NewPublisher(run, trouble).write(ctx, want)
}
