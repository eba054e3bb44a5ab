// Package input reads text and JSON from outside within bounds, and names the line where something is wrong.
package input

import (
	"errors"
	"fmt"
)

// Two ways for reading to fail. A command exits 2 for the first and 3 for the second.
var (
	// ErrUnreadable: the input is not what it should be; another try with the same bytes fails the same way.
	ErrUnreadable = errors.New("unreadable input")
	// ErrUnknown: the input may be right, but it could not be judged: reading broke off, or a limit was reached.
	ErrUnknown = errors.New("could not tell")
)

// Error says what is wrong with an input and where. It matches ErrUnreadable or ErrUnknown with errors.Is.
type Error struct {
	Line int    // 1 is the first line; 0 when the error belongs to no line
	Msg  string // what is wrong
	Kind error  // ErrUnreadable or ErrUnknown
	Err  error  // the reader's own error, if any
}

func (e *Error) Error() string {
	msg := e.Msg
	if e.Err != nil {
		msg = fmt.Sprintf("%s: %v", msg, e.Err)
	}
	if e.Line > 0 {
		return fmt.Sprintf("line %d: %s", e.Line, msg)
	}
	return msg
}

func (e *Error) Unwrap() []error {
	if e.Err != nil {
		return []error{e.Kind, e.Err}
	}
	return []error{e.Kind}
}

// Unreadable returns an Error of kind ErrUnreadable.
func Unreadable(line int, format string, args ...any) error {
	return &Error{Line: line, Msg: fmt.Sprintf(format, args...), Kind: ErrUnreadable}
}

// Unknown returns an Error of kind ErrUnknown.
func Unknown(line int, format string, args ...any) error {
	return &Error{Line: line, Msg: fmt.Sprintf(format, args...), Kind: ErrUnknown}
}
