// Package wire speaks netlink with the kernel. Every answer is read into one buffer of the socket: libraries keep all messages of a dump,
// and copy each of them.
package wire

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// ErrTorn is the error of a dump during which its subject changed.
var ErrTorn = errors.New("a change interrupted the reading")

// Conn is a netlink socket in the network namespace of the thread that opened it. Only one goroutine at a time may use it.
type Conn struct {
	FD     int
	Number uint32 // of the last request
	in     []byte
}

// Open opens a socket of a protocol such as NETLINK_ROUTE.
func Open(protocol int) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	const patience, buffer = 5, 1 << 20 // seconds, bytes
	s := &Conn{FD: fd, in: make([]byte, 64<<10)}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil { // it needs CAP_NET_ADMIN of the first user namespace
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer) // as much as net.core.rmem_max allows
	}
	err = cmp.Or(err, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: patience}),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return s, nil
}

// With calls do with a socket of a protocol.
func With(protocol int, do func(*Conn) error) error {
	s, err := Open(protocol)
	if err != nil {
		return err
	}
	defer s.Close()
	return do(s)
}

// Close closes the socket.
func (s *Conn) Close() { _ = unix.Close(s.FD) }

// Dump returns the data of all messages of a dump, and repeats a torn one.
func (s *Conn) Dump(kind uint16, payload []byte) (list [][]byte, err error) {
	for range 20 {
		list, err = s.Ask(kind, unix.NLM_F_DUMP, payload)
		if !errors.Is(err, ErrTorn) {
			return list, err
		}
	}
	return nil, err
}

// Ask sends a request and returns the data of all answers.
func (s *Conn) Ask(kind, flags uint16, payload []byte) (list [][]byte, err error) {
	err = s.Each(kind, flags, payload, func(_ uint16, data []byte) error {
		list = append(list, bytes.Clone(data))
		return nil
	})
	return list, err
}

// Each sends a request and passes each answer to read, which must not keep it. If read fails, the other answers are discarded.
func (s *Conn) Each(kind, flags uint16, payload []byte, read func(kind uint16, data []byte) error) error {
	if flags&unix.NLM_F_DUMP != unix.NLM_F_DUMP {
		flags |= unix.NLM_F_ACK
	}
	s.Number++
	if err := s.Send(Frame(nil, kind, flags, s.Number, payload)); err != nil {
		return err
	}
	var failed error
	for {
		end, err := s.Receive(func(number uint32, kind, flags uint16, data []byte) (bool, error) {
			if number != s.Number {
				return false, nil // an answer to an earlier request
			}
			if flags&unix.NLM_F_DUMP_INTR != 0 {
				failed = ErrTorn
			}
			if kind == unix.NLMSG_DONE || kind == unix.NLMSG_ERROR {
				return true, Failure(data)
			}
			if failed == nil {
				failed = read(kind, data)
			}
			return false, nil
		})
		if err != nil || end {
			return cmp.Or(err, failed)
		}
	}
}

// Send sends messages.
func (s *Conn) Send(b []byte) error {
	for {
		if err := unix.Sendto(s.FD, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Failure returns the error number with which NLMSG_ERROR and NLMSG_DONE begin.
func Failure(data []byte) error {
	if len(data) >= 4 {
		if no := int32(binary.NativeEndian.Uint32(data)); no < 0 {
			return unix.Errno(-no)
		}
	}
	return nil
}

// Receive passes the messages of one system call to read, until read returns true or an error.
func (s *Conn) Receive(read func(number uint32, kind, flags uint16, data []byte) (bool, error)) (bool, error) {
	n, from, err := unix.Recvfrom(s.FD, s.in, unix.MSG_TRUNC)
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if kernel, ok := from.(*unix.SockaddrNetlink); !ok || kernel.Pid != 0 {
		return false, nil // another program may write to this socket
	}
	if n > len(s.in) {
		return false, io.ErrShortBuffer
	}
	for b := s.in[:n]; len(b) >= unix.SizeofNlMsghdr; {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return false, io.ErrUnexpectedEOF
		}
		end, err := read(binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:]),
			b[unix.SizeofNlMsghdr:size])
		if end || err != nil {
			return end, err
		}
		b = b[min(len(b), Align(size)):]
	}
	return false, nil
}

// Align rounds up to the alignment of messages and attributes.
func Align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

// Frame appends a message with its header.
func Frame(b []byte, kind, flags uint16, number uint32, payload []byte) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(unix.SizeofNlMsghdr+len(payload)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = binary.NativeEndian.AppendUint32(b, number)
	b = append(append(b, 0, 0, 0, 0), payload...)
	return append(b, make([]byte, Align(len(payload))-len(payload))...)
}

// Attribute returns an attribute, padded. The parts of its value follow each other.
func Attribute(kind uint16, value ...[]byte) []byte {
	all := bytes.Join(value, nil)
	b := binary.NativeEndian.AppendUint16(make([]byte, 0, 4+Align(len(all))), uint16(unix.SizeofNlAttr+len(all)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), all...)
	return append(b, make([]byte, Align(len(all))-len(all))...)
}
