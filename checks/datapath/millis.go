package datapath

import (
	"encoding/json"
	"time"
)

// Millis is a duration that is a number of milliseconds in JSON.
type Millis time.Duration

// MarshalJSON writes microseconds as decimals.
func (m Millis) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(time.Duration(m).Round(time.Microsecond)) / float64(time.Millisecond))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (m *Millis) UnmarshalJSON(b []byte) error {
	var ms float64
	if err := json.Unmarshal(b, &ms); err != nil {
		return err
	}
	*m = Millis(ms * float64(time.Millisecond))
	return nil
}

func (m Millis) String() string { return time.Duration(m).Round(10 * time.Microsecond).String() }
