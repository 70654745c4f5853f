package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// epollReaders read all sockets with a few loops, each over an epoll set of its own: the Go
// runtime would want a goroutine, its stack and a buffer for each of ten thousand.
type epollReaders struct {
	wg      sync.WaitGroup
	loops   []*epollLoop
	err     error // why loops could not be made
	secured goroutineReaders
}

type epollLoop struct {
	epoll, wake int
	mu          sync.Mutex
	conns       []*epollConn // an event carries the index
}

type epollConn struct {
	light *lightConn
	mu    sync.Mutex // writers, and the end
	fd    int        // -1 once closed
}

// wakeEvent is the index that tells a loop to stop.
const wakeEvent = -1

func newReaders(loops int) readers {
	r := &epollReaders{}
	for range loops {
		l, err := newEpollLoop()
		if err != nil {
			r.err = err
			break
		}
		r.loops = append(r.loops, l)
		r.wg.Go(l.run)
	}
	return r
}

func newEpollLoop() (*epollLoop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an epoll set: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: wakeEvent})
	}
	if err != nil {
		_ = unix.Close(epoll)
		return nil, fmt.Errorf("make an event descriptor: %w", err)
	}
	return &epollLoop{epoll: epoll, wake: wake}, nil
}

// take moves the socket out of the Go runtime's poller, which would otherwise wake for each
// message too.
func (r *epollReaders) take(conn net.Conn, worker int, c *lightConn) error {
	if r.err != nil {
		return r.err
	}
	socket, plain := conn.(*net.TCPConn)
	if !plain {
		return r.secured.take(conn, worker, c)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	fd, dupErr := -1, error(nil)
	if err := raw.Control(func(old uintptr) {
		fd, dupErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return err
	}
	if dupErr != nil {
		return os.NewSyscallError("dup", dupErr)
	}
	if err := socket.Close(); err != nil {
		_ = unix.Close(fd)
		return err
	}
	l := r.loops[worker%len(r.loops)]
	ec := &epollConn{light: c, fd: fd}
	c.socket = ec
	l.mu.Lock()
	index := len(l.conns)
	l.conns = append(l.conns, ec)
	l.mu.Unlock()
	// What came behind the handshake is the beginning of a frame at most, or it would have
	// been parsed there: it needs no turn of its own.
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(index)}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		ec.close()
		return os.NewSyscallError("epoll_ctl", err)
	}
	return nil
}

func (r *epollReaders) close() {
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	for _, l := range r.loops {
		// It can't fail: the counter is far from full.
		_, _ = unix.Write(l.wake, one)
	}
	r.secured.close()
	r.wg.Wait()
}

// run reads until it is told to stop, then closes everything that it has.
func (l *epollLoop) run() {
	defer l.close()
	events := make([]unix.EpollEvent, 512)
	buffer := make([]byte, 64<<10)
	for {
		n, err := unix.EpollWait(l.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		l.mu.Lock()
		conns := l.conns
		l.mu.Unlock()
		for _, event := range events[:n] {
			if event.Fd == wakeEvent {
				return
			}
			conns[event.Fd].read(buffer)
		}
	}
}

func (l *epollLoop) close() {
	l.mu.Lock()
	conns := l.conns
	l.mu.Unlock()
	for _, c := range conns {
		if c.close() {
			c.light.ended(net.ErrClosed)
		}
	}
	_ = unix.Close(l.wake)
	_ = unix.Close(l.epoll)
}

// read takes once what the socket has; what is left makes the set report it again.
func (c *epollConn) read(buffer []byte) {
	n, err := unix.Read(c.fd, buffer) // only the loop closes, so the descriptor is ours here
	at := now()
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return
	case err != nil:
		err = os.NewSyscallError("read", err)
	case n == 0:
		err = io.EOF
	default:
		err = c.light.feed(buffer[:n], at)
	}
	if err != nil && c.close() {
		c.light.ended(err)
	}
}

// close reports whether this call closed it. Closing takes it out of the epoll set.
func (c *epollConn) close() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return false
	}
	_ = unix.Close(c.fd)
	c.fd = -1
	return true
}

func (c *epollConn) write(data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	deadline := time.Now().Add(writeTimeout)
	for len(data) > 0 {
		if c.fd < 0 {
			return net.ErrClosed
		}
		n, err := unix.Write(c.fd, data)
		switch {
		case err == nil:
			data = data[n:]
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			left := time.Until(deadline)
			if left <= 0 {
				return fmt.Errorf("the server took nothing for %v: %w", writeTimeout, os.ErrDeadlineExceeded)
			}
			wait := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}
			if _, err := unix.Poll(wait, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
				return os.NewSyscallError("poll", err)
			}
		default:
			return os.NewSyscallError("write", err)
		}
	}
	return nil
}
