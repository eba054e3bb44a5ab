package gate

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRetry: an outlet that lost a message is tried again after its time, however many messages come meanwhile.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, tries := Voice{}, 0
		for range 10 {
			v.write("/run", func() bool { tries++; return tries == 3 })
			time.Sleep(2 * time.Second)
		}
		if want := "; messages that nobody accepted: /run 9"; tries != 4 || v.losses() != want {
			t.Errorf("tried %d times%s", tries, v.losses())
		}
	})
}
