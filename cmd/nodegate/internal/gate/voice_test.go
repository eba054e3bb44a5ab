package gate

import (
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/assert"
)

// TestRetry: an outlet that lost a message is retried after the retry time, however many messages arrive before.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, tries := Voice{}, 0
		for range 10 {
			v.write("/run", func() bool { tries++; return tries == 3 })
			time.Sleep(2 * time.Second)
		}
		want := "; lost messages: /run 9"
		assert.True(t, tries == 4 && v.losses() == want, "tried %d times%s", tries, v.losses())
	})
}
