// Package input reads text and JSON from outside within bounds, and names the line of a fault.
package input

import (
	"errors"
	"fmt"
)

// The two kinds of read errors. A command exits with 2 for the first and 3 for the second.
var (
	// ErrUnreadable: the input is invalid; another try with the same bytes fails the same way.
	ErrUnreadable = errors.New("unreadable input")
	// ErrUnknown: the input may be valid but could not be judged: reading broke off, or a limit was
	// reached.
	ErrUnknown = errors.New("could not determine the result")
)

// Error is a fault of an input and its line. It matches ErrUnreadable or ErrUnknown with errors.Is.
type Error struct {
	Line int    // 1 is the first line; 0 if the error has no line
	Msg  string // the fault
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
