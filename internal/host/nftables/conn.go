// Package nftables reads nf_tables over netlink: its generation, kube-proxy's tables, and
// iptables-nft's tables.
package nftables

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ErrTorn is the error of a read during which the rules changed.
var ErrTorn = errors.New("the rules changed while they were read")

const (
	nfGenMsg = 4 // the header of every message: struct nfgenmsg
	patience = 5 * time.Second
)

// conn queries nf_tables in the network namespace of the thread that called dial. It reads every
// response into the same buffer, because the library would keep all messages of a dump and copy
// each of them.
type conn struct {
	*netlink.Conn
	ctx    context.Context
	raw    syscall.RawConn
	family uint8

	subsystem uint16 // of nfnetlink

	number uint32 // sequence number of the last request
	out    []byte
	in     []byte
	end    func() bool

	fixed uint32 // the generation that all responses must have, 0 for any
}

// attribute is one attribute of a request.
type attribute struct {
	kind  uint16
	value string
}

// called returns the attribute that names a table, a chain or a set.
func called(kind uint16, name string) attribute { return attribute{kind, name + "\x00"} }

func dial(ctx context.Context, family uint8) (*conn, error) {
	nl, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	raw, err := nl.SyscallConn()
	if err == nil {
		err = nl.SetReadBuffer(singly * largest) // independently of net.core.rmem_default
	}
	if err != nil {
		_ = nl.Close() // unused, so its error does not matter
		return nil, err
	}
	// a dump message has at most 32 KiB
	c := &conn{Conn: nl, ctx: ctx, raw: raw, family: family, subsystem: unix.NFNL_SUBSYS_NFTABLES, in: make([]byte, 64<<10)}
	c.end = context.AfterFunc(ctx, func() { _ = nl.SetDeadline(time.Unix(1, 0)) })
	return c, nil
}

func (c *conn) close() {
	c.end()
	_ = c.Close() // it was only read from
}

// generation returns the number that every change of the rules increments: NFTA_GEN_ID of
// include/uapi/linux/netfilter/nf_tables.h.
func (c *conn) generation() (uint32, error) {
	var id []byte
	err := c.ask(unix.NFT_MSG_GETGEN, unix.NLM_F_ACK, nil, func(_ int, b []byte) error {
		a, err := split(b[nfGenMsg:])
		id = bytes.Clone(a[unix.NFTA_GEN_ID])
		return err
	})
	if err == nil && len(id) != 4 {
		err = errors.New("the response does not contain it")
	}
	if err != nil {
		return 0, fmt.Errorf("reading the generation of the rules: %w", err)
	}
	return binary.BigEndian.Uint32(id), nil
}

// ask sends a request and passes each response to read, which must not keep it. If read fails, the
// remaining responses are discarded before the error is returned.
func (c *conn) ask(request, flags uint16, about []attribute, read func(message int, b []byte) error) error {
	if err := c.send(request, flags, about); err != nil {
		return err
	}
	var failed error
	for {
		b, err := c.receive()
		if err != nil {
			return err
		}
		for len(b) > 0 {
			size := uint32(0)
			if len(b) >= unix.SizeofNlMsghdr {
				size = binary.NativeEndian.Uint32(b)
			}
			if size < unix.SizeofNlMsghdr || size > uint32(len(b)) {
				return io.ErrUnexpectedEOF
			}
			one := b[:size]
			b = b[min(len(b), int(size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
			if binary.NativeEndian.Uint32(one[8:]) != c.number {
				continue // a response to an earlier request
			}
			if binary.NativeEndian.Uint16(one[6:])&unix.NLM_F_DUMP_INTR != 0 {
				failed = ErrTorn
			}
			data := one[unix.SizeofNlMsghdr:]
			switch kind := binary.NativeEndian.Uint16(one[4:]); {
			case kind == unix.NLMSG_DONE || kind == unix.NLMSG_ERROR:
				if len(data) >= 4 {
					if no := int32(binary.NativeEndian.Uint32(data)); no < 0 {
						return unix.Errno(-no)
					}
				}
				return failed
			case failed != nil || len(data) < nfGenMsg:
			case c.fixed != 0 && binary.BigEndian.Uint16(data[2:]) != uint16(c.fixed): // nfgenmsg has the lower half of the generation
				failed = ErrTorn
			default:
				failed = read(int(kind&0xff), data)
			}
		}
	}
}

func (c *conn) send(request, flags uint16, about []attribute) error {
	c.number++
	b := binary.NativeEndian.AppendUint32(c.out[:0], 0) // size, filled in below
	b = binary.NativeEndian.AppendUint16(b, c.subsystem<<8|request)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = binary.NativeEndian.AppendUint32(b, c.number)
	b = append(b, 0, 0, 0, 0, c.family, unix.NFNETLINK_V0, 0, 0)
	for _, a := range about {
		b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofNlAttr+len(a.value)))
		b = binary.NativeEndian.AppendUint16(b, a.kind)
		b = append(b, a.value...)
		for len(b)%unix.NLA_ALIGNTO != 0 {
			b = append(b, 0)
		}
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	c.out = b
	var failed error
	err := c.raw.Write(func(fd uintptr) bool {
		failed = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return failed != unix.EAGAIN && failed != unix.EINTR
	})
	return cmp.Or(err, failed)
}

// receive returns the data of one system call, in c.in.
func (c *conn) receive() (b []byte, err error) {
	for {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return nil, err
		}
		if c.ctx.Err() != nil { // ctx may have ended before the deadline was set
			return nil, c.ctx.Err()
		}
		var n int
		var from unix.Sockaddr
		var failed error
		if err := c.raw.Read(func(fd uintptr) bool {
			n, from, failed = unix.Recvfrom(int(fd), c.in, unix.MSG_TRUNC)
			return failed != unix.EAGAIN && failed != unix.EINTR
		}); err != nil {
			return nil, err
		}
		if failed != nil {
			return nil, failed
		}
		if kernel, ok := from.(*unix.SockaddrNetlink); !ok || kernel.Pid != 0 {
			continue // another program may write to this socket
		}
		if n > len(c.in) {
			return nil, fmt.Errorf("a message of %d bytes: %w", n, io.ErrShortBuffer)
		}
		return c.in[:n], nil
	}
}
