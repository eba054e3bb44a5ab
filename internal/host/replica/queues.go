package replica

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/wire"
)

// Messages and attributes of include/uapi/linux/netfilter/nfnetlink_queue.h.
const (
	queuePacket     = 0
	queueVerdict    = 1
	queueConfig     = 2
	queueHeader     = 1
	queueVerdictIs  = 2
	queueCommand    = 1
	queueBind       = 1
	queueParameters = 2
	queueCopyMeta   = 1
)

// acceptQueues accepts the packets of the queues that a program of the node reads. The other queues lack a
// listener, as on the node.
func (r *Replica) acceptQueues() error {
	for _, queue := range r.Capture.Queues {
		s, err := wire.Open(unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		message := func(attributes ...[]byte) []byte {
			return append([]byte{0, unix.NFNETLINK_V0, byte(queue >> 8), byte(queue)}, slices.Concat(attributes...)...)
		}
		const config = unix.NFNL_SUBSYS_QUEUE<<8 | queueConfig
		_, err = s.Ask(config, 0, message(attribute(queueCommand, []byte{queueBind, 0, 0, 0})))
		if err == nil {
			_, err = s.Ask(config, 0, message(attribute(queueParameters, []byte{0, 0, 0, 0, queueCopyMeta})))
		}
		if err != nil {
			s.Close()
			r.refuse("queue", err)
			continue
		}
		var closed atomic.Bool
		r.closers = append(r.closers, func() { closed.Store(true) })
		_ = unix.SetsockoptTimeval(s.FD, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
		go func() {
			defer s.Close()
			accept(s, &closed, func(id []byte) []byte { return message(attribute(queueVerdictIs, []byte{0, 0, 0, 1}, id)) })
		}()
	}
	return nil
}

// accept accepts every packet until closed is true.
func accept(s *wire.Conn, closed *atomic.Bool, verdict func(id []byte) []byte) {
	for !closed.Load() {
		_, err := s.Receive(func(_ uint32, kind, _ uint16, data []byte) (bool, error) {
			if kind != unix.NFNL_SUBSYS_QUEUE<<8|queuePacket || len(data) < netfilterHeader {
				return false, nil
			}
			header := attributes(data[netfilterHeader:], queueHeader)[queueHeader]
			if len(header) < 4 {
				return false, nil
			}
			s.Number++
			id := binary.NativeEndian.AppendUint32(nil, binary.NativeEndian.Uint32(header))
			return false, s.Send(wire.Frame(nil, unix.NFNL_SUBSYS_QUEUE<<8|queueVerdict, 0, s.Number, verdict(id)))
		})
		if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}
