package replica

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"nodegate/internal/nlattr"
)

// wire is a netlink socket in the network namespace of the thread that opened it.
type wire struct {
	fd       int
	protocol int
	number   uint32
	in       []byte
}

func open(protocol int) (*wire, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, err
	}
	const patience = 5 // seconds
	s := &wire{fd: fd, protocol: protocol, in: make([]byte, 64<<10)}
	err = cmp.Or(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: patience}),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20), // as much as net.core.rmem_max allows
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *wire) close() { _ = unix.Close(s.fd) }

// errInterrupted is the error of a dump that a change tore.
var errInterrupted = errors.New("the dump was interrupted by changes")

// dump returns the data of all messages of a dump, and repeats a torn one.
func (s *wire) dump(kind uint16, payload []byte) (list [][]byte, err error) {
	for range 20 {
		list, err = s.ask(kind, unix.NLM_F_DUMP, payload)
		if !errors.Is(err, errInterrupted) {
			return list, err
		}
	}
	return nil, err
}

// ask sends a request and returns the data of all answers.
func (s *wire) ask(kind, flags uint16, payload []byte) ([][]byte, error) {
	if flags&unix.NLM_F_DUMP != unix.NLM_F_DUMP {
		flags |= unix.NLM_F_ACK
	}
	s.number++
	if err := unix.Sendto(s.fd, frame(nil, kind, flags, s.number, payload), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	var list [][]byte
	var torn error
	for {
		end, err := s.receive(func(number uint32, kind, flags uint16, data []byte) (bool, error) {
			if number != s.number {
				return false, nil
			}
			if flags&unix.NLM_F_DUMP_INTR != 0 {
				torn = errInterrupted
			}
			if kind == unix.NLMSG_DONE || kind == unix.NLMSG_ERROR {
				return true, failure(data)
			}
			list = append(list, bytes.Clone(data))
			return false, nil
		})
		if err != nil || end {
			return list, cmp.Or(err, torn)
		}
	}
}

// failure returns the error number with which NLMSG_ERROR and NLMSG_DONE begin.
func failure(data []byte) error {
	if len(data) >= 4 {
		if no := int32(binary.NativeEndian.Uint32(data)); no < 0 {
			return unix.Errno(-no)
		}
	}
	return nil
}

// receive passes the messages of one system call to read, until read returns true or an error.
func (s *wire) receive(read func(number uint32, kind, flags uint16, data []byte) (bool, error)) (bool, error) {
	n, from, err := unix.Recvfrom(s.fd, s.in, unix.MSG_TRUNC)
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
		b = b[min(len(b), align(size)):]
	}
	return false, nil
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

// frame appends a message with its header.
func frame(b []byte, kind, flags uint16, number uint32, payload []byte) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(unix.SizeofNlMsghdr+len(payload)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = binary.NativeEndian.AppendUint32(b, number)
	b = append(append(b, 0, 0, 0, 0), payload...)
	return append(b, make([]byte, align(len(payload))-len(payload))...)
}

// attribute returns an attribute, padded. The parts of its value follow each other.
func attribute(kind uint16, value ...[]byte) []byte {
	all := bytes.Join(value, nil)
	b := binary.NativeEndian.AppendUint16(make([]byte, 0, 4+align(len(all))), uint16(unix.SizeofNlAttr+len(all)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), all...)
	return append(b, make([]byte, align(len(all))-len(all))...)
}

func text(kind uint16, value string) []byte { return attribute(kind, []byte(value), []byte{0}) }

func number(kind uint16, value int) []byte { // of rtnetlink, in the byte order of the machine
	return attribute(kind, binary.NativeEndian.AppendUint32(nil, uint32(value)))
}

func network(kind uint16, value uint32) []byte { // of nfnetlink
	return attribute(kind, binary.BigEndian.AppendUint32(nil, value))
}

// attributes returns the values of the attributes of b with types up to most. It ends at a torn attribute.
func attributes(b []byte, most int) [][]byte {
	list := make([][]byte, most+1)
	_ = nlattr.Split(b, list) // what precedes a torn attribute is there
	return list
}

// filter returns the attributes for which keep returns true, as they are.
func filter(b []byte, keep func(kind int) bool) []byte {
	out := make([]byte, 0, len(b)+3)
	for len(b) > 0 {
		kind, _, rest, err := nlattr.Next(b)
		if err != nil {
			break
		}
		if one := b[:len(b)-len(rest)]; keep(kind) {
			out = append(out, one...)
			out = append(out, make([]byte, align(len(one))-len(one))...)
		}
		b = rest
	}
	return out
}

// each passes every attribute of b to do: its type, value and whole form.
func each(b []byte, do func(kind int, value, whole []byte)) {
	for len(b) > 0 {
		kind, value, rest, err := nlattr.Next(b)
		if err != nil {
			return
		}
		do(kind, value, b[:len(b)-len(rest)])
		b = rest
	}
}

func name(b []byte) string { return string(bytes.TrimRight(b, "\x00")) }

func uint32Of(b []byte) uint32 { // of nfnetlink
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func intOf(b []byte) int { // of rtnetlink
	if len(b) != 4 {
		return 0
	}
	return int(int32(binary.NativeEndian.Uint32(b)))
}
