package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pipeLook is how often it is looked whether the reader of a pipe has gone. Nothing is written into
// the pipe while nothing matches, so no write tells.
const pipeLook = 250 * time.Millisecond

// errReaderGone means that nobody reads the output any more.
var errReaderGone = errors.New("nobody reads the output any more")

// endsWithReader calls stop once the reader of the output has gone, if that is a pipe. It returns
// when ctx ends, or after the call.
func endsWithReader(ctx context.Context, out io.Writer, stop context.CancelCauseFunc) {
	pipe := pipeOf(out)
	if pipe == nil {
		return
	}
	ticker := time.NewTicker(pipeLook)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if readerGone(pipe) {
			stop(errReaderGone)
			return
		}
	}
}

// pipeOf returns the pipe behind a writer, or nil.
func pipeOf(out io.Writer) *os.File {
	f, ok := out.(*os.File)
	if !ok {
		return nil
	}
	if is, err := f.Stat(); err != nil || is.Mode()&os.ModeNamedPipe == 0 {
		return nil
	}
	return f
}

// readerGone reports whether nobody has the other end of a pipe open. Systems tell it by either of
// the two events.
func readerGone(pipe *os.File) (gone bool) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		is := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(is, 0)
		gone = err == nil && n > 0 && is[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return gone
}

// writeToNobody writes into a pipe whose reader has gone, so that the process ends as one does that
// has something to print: by a signal, without words, if it is standard output.
func writeToNobody(out io.Writer) error {
	if pipe := pipeOf(out); pipe != nil && readerGone(pipe) {
		if _, err := pipe.Write([]byte{'\n'}); err != nil {
			return err
		}
	}
	return errReaderGone
}
